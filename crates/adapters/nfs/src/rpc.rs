//! Remote procedure calls (RFC 5531) over TCP: records, calls, replies.

use std::io::{self, Read};
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
use crate::export::{Caller, Export, Failed};
use crate::files::TRANSFER_BYTES_MAX;

/// Most bytes of a record: a WRITE of the largest size, with room for its header.
pub const RECORD_BYTES_MAX: usize = TRANSFER_BYTES_MAX as usize + 4096;

/// Mark of the last fragment of a record.
const LAST_FRAGMENT: u32 = 1 << 31;
/// Version of the protocol.
const RPC_VERSION: u32 = 2;
/// Most bytes of a credential.
const CREDENTIAL_BYTES_MAX: usize = 400;
/// Flavors of credentials.
const AUTH_NONE: u32 = 0;
const AUTH_SYS: u32 = 1;

/// Outcome of a call.
pub(crate) enum Reply {
    /// The packed result.
    Result(Vec<u8>),
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
struct Call<'a> {
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
    Ok(Caller { uid: args.u32()?, gid: args.u32()? })
}

fn parse(record: &[u8]) -> Decoded<Call<'_>> {
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
    Ok(Call { xid, version, program, program_version, procedure, flavor, caller, arguments })
}

fn message(xid: u32, body: reply_body<'_>, result: &[u8]) -> Vec<u8> {
    let message = rpc_msg { xid, body: msg_body::REPLY(body) };
    let mut bytes = vec![0; 4];
    // Memory takes every byte.
    let _ = message.pack(&mut bytes);
    bytes.extend_from_slice(result);
    let mark = LAST_FRAGMENT | (bytes.len() - 4) as u32;
    bytes[..4].copy_from_slice(&mark.to_be_bytes());
    bytes
}

fn accepted(xid: u32, reply_data: accept_stat_data, result: &[u8]) -> Vec<u8> {
    let reply = accepted_reply { verf: opaque_auth::default(), reply_data };
    message(xid, reply_body::MSG_ACCEPTED(reply), result)
}

/// The record that answers a record, with its mark. An error: the peer does not speak RPC.
pub(crate) fn reply_to(
    export: &Export,
    duplicates: &Duplicates,
    peer: IpAddr,
    record: &[u8],
) -> Decoded<Vec<u8>> {
    let call = parse(record)?;
    let xid = call.xid;
    if call.version != RPC_VERSION {
        let reply = rejected_reply::rpc_mismatch(RPC_VERSION, RPC_VERSION);
        return Ok(message(xid, reply_body::MSG_DENIED(reply), &[]));
    }
    if !matches!(call.flavor, AUTH_NONE | AUTH_SYS) {
        let reply = rejected_reply::auth_error(auth_stat::AUTH_REJECTEDCRED);
        return Ok(message(xid, reply_body::MSG_DENIED(reply), &[]));
    }
    let version = match call.program {
        nfs3::PROGRAM => nfs3::VERSION,
        mount::PROGRAM => mount::VERSION,
        _ => return Ok(accepted(xid, accept_stat_data::PROG_UNAVAIL, &[])),
    };
    if call.program_version != version {
        let mismatch = accept_stat_data::PROG_MISMATCH { low: version, high: version };
        return Ok(accepted(xid, mismatch, &[]));
    }
    if call.program == mount::PROGRAM {
        return Ok(finished(xid, export.mount_call(call.procedure, call.arguments)));
    }
    // SETATTR, CREATE to LINK.
    let once = matches!(call.procedure, 2 | 8..=15);
    let key = duplicates::key(peer, xid, record);
    if once && let Some(reply) = duplicates.find(&key) {
        return Ok(reply.to_vec());
    }
    let reply = finished(xid, nfs_call(export, &call));
    if once {
        duplicates.keep(key, &reply);
    }
    Ok(reply)
}

fn finished(xid: u32, reply: Reply) -> Vec<u8> {
    match reply {
        Reply::Result(bytes) => accepted(xid, accept_stat_data::SUCCESS, &bytes),
        Reply::Garbage => accepted(xid, accept_stat_data::GARBAGE_ARGS, &[]),
        Reply::NoProcedure => accepted(xid, accept_stat_data::PROC_UNAVAIL, &[]),
    }
}

/// A call of the NFS program: RFC 1813, section 3.3.
fn nfs_call(export: &Export, call: &Call<'_>) -> Reply {
    let (args, caller) = (call.arguments, call.caller);
    match call.procedure {
        0 => packed(&Void),
        1 => export.getattr(args),
        2 => export.setattr(args),
        3 => export.lookup(args),
        4 => export.access(args),
        5 => export.readlink(args),
        6 => export.read(args),
        7 => export.write(args, caller),
        8 => export.create(args, caller),
        9 => export.mkdir(args, caller),
        10 => export.symlink(args, caller),
        11 => export.mknod(args, caller),
        12 => export.remove(args),
        13 => export.rmdir(args),
        14 => export.rename(args),
        15 => export.link(args),
        16 => export.readdir(args),
        17 => export.readdirplus(args),
        18 => export.fsstat(args),
        19 => export.fsinfo(args),
        20 => export.pathconf(args),
        21 => export.commit(args),
        _ => Reply::NoProcedure,
    }
}

/// Reads the next record into `record`. False: the peer has closed the connection.
pub(crate) fn read_record(from: &mut impl Read, record: &mut Vec<u8>) -> io::Result<bool> {
    record.clear();
    loop {
        let mut mark = [0; 4];
        match from.read_exact(&mut mark) {
            Err(err) if err.kind() == io::ErrorKind::UnexpectedEof && record.is_empty() => {
                return Ok(false);
            }
            read => read?,
        }
        let mark = u32::from_be_bytes(mark);
        let (last, len) = (mark & LAST_FRAGMENT != 0, (mark & !LAST_FRAGMENT) as usize);
        if len > RECORD_BYTES_MAX - record.len() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let start = record.len();
        record.resize(start + len, 0);
        from.read_exact(&mut record[start..])?;
        if last {
            return Ok(true);
        }
        if len == 0 {
            // Fragments without bytes would keep a thread busy for nothing.
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}
