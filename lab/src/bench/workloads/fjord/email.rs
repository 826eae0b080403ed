//! A mail client after an account was added: it fetches messages, one a step.
//!
//! Shaped as Android's Email: headers and mailbox counters in one database, bodies in another, each
//! message in transactions of its own; one message in five has an attachment, a file that nobody
//! syncs and a row.

use crate::latency::Timer;
use rand_chacha::ChaCha8Rng;
use rusqlite::{Connection, params};

use super::{length, prose, save};
use crate::bench::target::Target;
use crate::bench::workloads::{Parameters, Workload, below, noise, not_open, random, sqlite};
use crate::error::Result;

const PROVIDER: &str = "/EmailProvider.db";
const BODIES: &str = "/EmailProviderBody.db";
const PROVIDER_TABLES: &str = "CREATE TABLE Message(_id INTEGER PRIMARY KEY, timeStamp INTEGER,
    subject TEXT, snippet TEXT, fromList TEXT, toList TEXT, flagLoaded INTEGER, mailboxKey INTEGER);
    CREATE INDEX message_timeStamp ON Message(timeStamp);
    CREATE INDEX message_mailboxKey ON Message(mailboxKey);
    CREATE TABLE Mailbox(_id INTEGER PRIMARY KEY, unreadCount INTEGER);
    INSERT INTO Mailbox VALUES(1, 0);
    CREATE TABLE Attachment(_id INTEGER PRIMARY KEY, fileName TEXT, size INTEGER,
    messageKey INTEGER);";
const BODIES_TABLES: &str =
    "CREATE TABLE Body(_id INTEGER PRIMARY KEY, messageKey INTEGER, textContent TEXT);
    CREATE INDEX body_messageKey ON Body(messageKey);";
/// Bytes of a body and of an attachment, at least and at most.
const BODY_BYTES: (u64, u64) = (1 << 10, 32 << 10);
const ATTACHMENT_BYTES: (u64, u64) = (16 << 10, 512 << 10);

struct Email {
    parameters: Parameters,
    rng: ChaCha8Rng,
    databases: Option<(Connection, Connection)>,
}

pub(super) fn email(p: &Parameters, _: u64) -> Box<dyn Workload> {
    Box::new(Email { parameters: p.clone(), rng: random(p.seed), databases: None })
}

impl Email {
    fn message(&mut self, target: &dyn Target, id: i64) -> Result<()> {
        let (provider, bodies) = self.databases.as_ref().ok_or_else(not_open)?;
        let rng = &mut self.rng;
        // The counter is a trigger's work in the original: the same transaction.
        provider.execute_batch("BEGIN")?;
        provider
            .prepare_cached("INSERT INTO Message VALUES(?,?,?,?,?,?,0,1)")?
            .execute(params![id, id * 7919, prose(rng, 40), prose(rng, 100), prose(rng, 24), ""])?;
        provider.execute_batch("UPDATE Mailbox SET unreadCount=unreadCount+1; COMMIT")?;
        let len = length(rng, BODY_BYTES.0, BODY_BYTES.1);
        bodies
            .prepare_cached("INSERT INTO Body VALUES(NULL,?,?)")?
            .execute(params![id, prose(rng, len)])?;
        provider.prepare_cached("UPDATE Message SET flagLoaded=1 WHERE _id=?")?.execute([id])?;
        if below(rng, 5) == 0 {
            let len = length(rng, ATTACHMENT_BYTES.0, ATTACHMENT_BYTES.1);
            let path = format!("/attachments/{id}");
            save(target, &path, &noise(rng, len))?;
            provider
                .prepare_cached("INSERT INTO Attachment VALUES(NULL,?,?,?)")?
                .execute(params![path, len as i64, id])?;
        }
        Ok(())
    }
}

impl Workload for Email {
    fn prepare(&mut self, target: &dyn Target) -> Result<()> {
        target.mkdir("/attachments")
    }

    fn open(&mut self, target: &dyn Target) -> Result<()> {
        let provider = sqlite::connect_to(target, PROVIDER, &self.parameters)?;
        provider.execute_batch(PROVIDER_TABLES)?;
        let bodies = sqlite::connect_to(target, BODIES, &self.parameters)?;
        bodies.execute_batch(BODIES_TABLES)?;
        self.databases = Some((provider, bodies));
        Ok(())
    }

    fn step(&mut self, target: &dyn Target, step: u64, timer: &mut Timer) -> Result<()> {
        timer.time(|| target.now_ns(), || self.message(target, step as i64 + 1))
    }

    fn close(&mut self, _: &dyn Target) -> Result<()> {
        let Some((provider, bodies)) = self.databases.take() else { return Ok(()) };
        sqlite::close(provider).and(sqlite::close(bodies))
    }
}
