//! Remote procedure calls (RFC 5531) over TCP: records, calls, replies.

use std::borrow::Cow;
use std::net::IpAddr;

use nfs3_types::nfs3::Nfs3Result;
use nfs3_types::rpc::{
    accept_stat_data, accepted_reply, auth_stat, msg_body, opaque_auth, rejected_reply, reply_body,
    rpc_msg,
};
use nfs3_types::xdr_codec::{Pack, Void};
use nfs3_types::{mount, nfs3};

use crate::arguments::{Arguments, Decoded, Garbage};
use crate::duplicates::{self, Duplicates};
use crate::export::{Caller, Export, Failed, GROUPS_MAX};
use crate::record::{LAST_FRAGMENT, Room};

/// Version of the protocol.
const RPC_VERSION: u32 = 2;
/// Most bytes of a credential.
const CREDENTIAL_BYTES_MAX: usize = 400;
/// Flavors of credentials.
const AUTH_NONE: u32 = 0;
const AUTH_SYS: u32 = 1;
/// Bytes of a reply before its result.
const HEADER_BYTES: usize = 28;

/// Outcome of a call.
pub(crate) enum Reply {
    /// The packed result.
    Result(Vec<u8>),
    /// The packed result up to its contents, and how many bytes of these are in the room.
    Contents(Vec<u8>, usize),
    /// Arguments without meaning.
    Garbage,
    /// No such procedure.
    NoProcedure,
}

/// A packed result.
pub(crate) fn packed(result: &impl Pack) -> Reply {
    let mut bytes = Vec::with_capacity(result.packed_size());
    // Writing to memory fails only for a value that has no encoding.
    result.pack(&mut bytes).map_or(Reply::NoProcedure, |_| Reply::Result(bytes))
}

/// The result of a procedure; `fail` gives what an error carries.
pub(crate) fn answer<T: Pack, E: Pack>(done: Result<T, Failed>, fail: impl FnOnce() -> E) -> Reply {
    match done {
        Ok(result) => packed(&Nfs3Result::<T, E>::Ok(result)),
        Err(Failed::Status(status)) => packed(&Nfs3Result::<T, E>::Err((status, fail()))),
        Err(Failed::Garbage) => Reply::Garbage,
    }
}

/// A call as it stands in a record.
pub(crate) struct Call<'a> {
    record: &'a [u8],
    xid: u32,
    version: u32,
    program: u32,
    program_version: u32,
    procedure: u32,
    flavor: u32,
    caller: Caller,
    arguments: Arguments<'a>,
}

fn credential(bytes: &[u8]) -> Decoded<Caller> {
    let mut args = Arguments(bytes);
    let (_stamp, _machine) = (args.u32()?, args.opaque()?);
    let (uid, gid, count) = (args.u32()?, args.u32()?, args.u32()? as usize);
    let mut groups = [gid; GROUPS_MAX];
    for group in groups.get_mut(..count).ok_or(Garbage)? {
        *group = args.u32()?;
    }
    Ok(Caller { uid, gid, groups })
}

impl Call<'_> {
    /// The reply to a call that is not served.
    fn refused(&self) -> Option<Vec<u8>> {
        let xid = self.xid;
        let denied = |reply| Some(message(xid, reply_body::MSG_DENIED(reply), &[], 0));
        if self.version != RPC_VERSION {
            return denied(rejected_reply::rpc_mismatch(RPC_VERSION, RPC_VERSION));
        }
        if !matches!(self.flavor, AUTH_NONE | AUTH_SYS) {
            return denied(rejected_reply::auth_error(auth_stat::AUTH_REJECTEDCRED));
        }
        let version = match self.program {
            nfs3::PROGRAM => nfs3::VERSION,
            mount::PROGRAM => mount::VERSION,
            _ => return Some(accepted(xid, accept_stat_data::PROG_UNAVAIL, &[], 0)),
        };
        let mismatch = accept_stat_data::PROG_MISMATCH { low: version, high: version };
        (self.program_version != version).then(|| accepted(xid, mismatch, &[], 0))
    }

    /// SETATTR, CREATE to LINK: sent again, they would answer something else.
    fn runs_once(&self) -> bool {
        matches!(self.procedure, 2 | 8..=15)
    }

    /// True of calls that wait for the device: those above, stable writes, COMMIT.
    pub(crate) fn may_wait(&self) -> bool {
        let stable = || matches!(stability(self.arguments), Ok(how) if how != 0);
        self.program == nfs3::PROGRAM
            && (self.runs_once() || self.procedure == 7 && stable() || self.procedure == 21)
    }
}

/// `stable_how` of a WRITE.
fn stability(mut args: Arguments<'_>) -> Decoded<u32> {
    let (_handle, _offset, _count) = (args.opaque()?, args.u64()?, args.u32()?);
    args.u32()
}

/// The call in a record. An error: the peer does not speak RPC.
pub(crate) fn parse(record: &[u8]) -> Decoded<Call<'_>> {
    let mut args = Arguments(record);
    let (xid, kind, version) = (args.u32()?, args.u32()?, args.u32()?);
    if kind != 0 {
        return Err(Garbage);
    }
    let (program, program_version, procedure) = (args.u32()?, args.u32()?, args.u32()?);
    let (flavor, body) = (args.u32()?, args.opaque()?);
    if body.len() > CREDENTIAL_BYTES_MAX {
        return Err(Garbage);
    }
    let caller = if flavor == AUTH_SYS { credential(body)? } else { Caller::default() };
    let (_verifier_flavor, _verifier) = (args.u32()?, args.opaque()?);
    let arguments = args;
    Ok(Call {
        record,
        xid,
        version,
        program,
        program_version,
        procedure,
        flavor,
        caller,
        arguments,
    })
}

/// A reply: mark, header, and the result up to its last `more` bytes.
fn message(xid: u32, body: reply_body<'_>, result: &[u8], more: usize) -> Vec<u8> {
    let message = rpc_msg { xid, body: msg_body::REPLY(body) };
    let mut bytes = Vec::with_capacity(HEADER_BYTES + result.len());
    bytes.extend([0; 4]);
    // Memory takes every byte.
    let _ = message.pack(&mut bytes);
    bytes.extend_from_slice(result);
    let mark = LAST_FRAGMENT | (bytes.len() - 4 + more.next_multiple_of(4)) as u32;
    bytes[..4].copy_from_slice(&mark.to_be_bytes());
    bytes
}

fn accepted(xid: u32, reply_data: accept_stat_data, result: &[u8], more: usize) -> Vec<u8> {
    let reply = accepted_reply { verf: opaque_auth::default(), reply_data };
    message(xid, reply_body::MSG_ACCEPTED(reply), result, more)
}

/// The record that answers this call, with its mark.
pub(crate) fn reply_to<'a>(
    export: &Export,
    duplicates: &Duplicates,
    peer: IpAddr,
    call: &Call<'_>,
    room: &'a mut Room,
) -> Cow<'a, [u8]> {
    let xid = call.xid;
    if let Some(refused) = call.refused() {
        return refused.into();
    }
    if call.program == mount::PROGRAM {
        return finished(xid, export.mount_call(call.procedure, call.arguments), room);
    }
    if !call.runs_once() {
        return finished(xid, nfs_call(export, call, room), room);
    }
    let reply = duplicates.once(duplicates::key(peer, xid, call.record), || {
        finished(xid, nfs_call(export, call, room), room).into()
    });
    reply.to_vec().into()
}

fn finished(xid: u32, reply: Reply, room: &mut Room) -> Cow<'_, [u8]> {
    match reply {
        Reply::Result(bytes) => accepted(xid, accept_stat_data::SUCCESS, &bytes, 0).into(),
        Reply::Contents(result, len) => {
            let head = accepted(xid, accept_stat_data::SUCCESS, &result, len);
            room.behind(&head, len).into()
        }
        Reply::Garbage => accepted(xid, accept_stat_data::GARBAGE_ARGS, &[], 0).into(),
        Reply::NoProcedure => accepted(xid, accept_stat_data::PROC_UNAVAIL, &[], 0).into(),
    }
}

/// Names of the procedures by their numbers.
pub(crate) const NAMES: &[(u32, &str)] = &[
    (1, "getattr"),
    (2, "setattr"),
    (3, "lookup"),
    (4, "access"),
    (5, "readlink"),
    (6, "read"),
    (7, "write"),
    (8, "create"),
    (9, "mkdir"),
    (10, "symlink"),
    (11, "mknod"),
    (12, "remove"),
    (13, "rmdir"),
    (14, "rename"),
    (15, "link"),
    (16, "readdir"),
    (17, "readdirplus"),
    (18, "fsstat"),
    (19, "fsinfo"),
    (20, "pathconf"),
    (21, "commit"),
];

/// A call of the NFS program: RFC 1813, section 3.3.
fn nfs_call(export: &Export, call: &Call<'_>, room: &mut Room) -> Reply {
    let (args, caller) = (call.arguments, &call.caller);
    export.status.kinds.add(call.procedure);
    match call.procedure {
        0 => packed(&Void),
        1 => export.getattr(args),
        2 => export.setattr(args, caller),
        3 => export.lookup(args, caller),
        4 => export.access(args, caller),
        5 => export.readlink(args),
        6 => export.read(args, caller, room),
        7 => export.write(args, caller),
        8 => export.create(args, caller),
        9 => export.mkdir(args, caller),
        10 => export.symlink(args, caller),
        11 => export.mknod(args, caller),
        12 => export.remove(args, caller),
        13 => export.rmdir(args, caller),
        14 => export.rename(args, caller),
        15 => export.link(args, caller),
        16 => export.readdir(args, caller),
        17 => export.readdirplus(args, caller),
        18 => export.fsstat(args),
        19 => export.fsinfo(args),
        20 => export.pathconf(args),
        21 => export.commit(args),
        _ => Reply::NoProcedure,
    }
}
