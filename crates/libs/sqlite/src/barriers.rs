//! Syncs of SQLite that become barriers, and what a sync is for.
//!
//! ```text
//!   DELETE   journal, its directory, its header: order | database: durable | unlink
//!   PERSIST  journal, its header: order | database: durable | header zeroed: durable
//!   WAL      header of a log that begins anew: order | transaction: durable
//! ```
//!
//! SQLite passes no flag for it, so a file goes by its kind and by what was written since its last
//! sync. Tested in `tests/it/vfs.rs`.

use rusqlite::ffi;

/// Syncs that are [`syncline_fs::Volume::fdatabarrier`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Barriers {
    /// None.
    #[default]
    None,
    /// Those that only order: the journal before the database, the header of a WAL before its
    /// frames. A transaction is durable as without.
    Order,
    /// All. Transactions are kept in order, and a power cut takes the last ones.
    All,
}

impl Barriers {
    /// Every choice, in the order of their numbers.
    pub const ALL: [Barriers; 3] = [Barriers::None, Barriers::Order, Barriers::All];

    /// Lower-case name, as in reports and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Barriers::None => "none",
            Barriers::Order => "order",
            Barriers::All => "all",
        }
    }
}

/// Size of the header of a WAL.
const WAL_HEADER_BYTES: usize = 32;

/// Changes of a file since its last sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Since {
    #[default]
    Nothing,
    /// The header of a WAL was written.
    Header,
    /// A journal was made invalid: its header is zeroed, or it is empty.
    End,
    Other,
}

/// Purpose of the next sync of a file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Purpose {
    is_journal: bool,
    is_wal: bool,
    since: Since,
}

impl Purpose {
    /// Of a file that was opened with these flags.
    pub(crate) fn new(flags: i32) -> Purpose {
        let journals = ffi::SQLITE_OPEN_MAIN_JOURNAL | ffi::SQLITE_OPEN_SUPER_JOURNAL;
        let (is_journal, is_wal) = (flags & journals != 0, flags & ffi::SQLITE_OPEN_WAL != 0);
        Purpose { is_journal, is_wal, since: Since::Nothing }
    }

    /// Something was written.
    pub(crate) fn note_write(&mut self, at: u64, from: &[u8]) {
        let is_header = at == 0 && from.len() == WAL_HEADER_BYTES;
        let is_end = at == 0 && from.iter().all(|byte| *byte == 0);
        self.since = match self.since {
            Since::Nothing if self.is_wal && is_header => Since::Header,
            Since::Nothing if self.is_journal && is_end => Since::End,
            _ => Since::Other,
        };
    }

    /// The file was cut.
    pub(crate) fn note_truncate(&mut self, size: u64) {
        self.since = if self.is_journal && size == 0 { Since::End } else { Since::Other };
    }

    /// True if the sync that now begins only has to order.
    pub(crate) fn take_order(&mut self, barriers: Barriers) -> bool {
        let since = std::mem::take(&mut self.since);
        match barriers {
            Barriers::None => false,
            Barriers::Order if self.is_journal => since != Since::End,
            Barriers::Order => since == Since::Header,
            Barriers::All => true,
        }
    }
}
