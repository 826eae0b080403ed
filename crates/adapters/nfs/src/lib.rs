//! A volume over NFS version 3 (RFC 1813), for systems and sandboxes without FUSE.
//!
//! ```text
//!   Linux, macOS, BSD clients, libnfs        one TCP port for MOUNT and NFS, no portmapper
//!        |
//!     server        accepts, calls tick()
//!     connection    threads that take turns to read calls; record: records (RFC 5531)
//!       rpc         calls and replies; mount: the MOUNT protocol
//!     duplicates    replies to calls that must not run twice
//!     export        handles -> inodes, attributes before and after
//!       files       read, write, commit, attributes    names    create, remove, rename, link
//!       listing     READDIR, READDIRPLUS               info     FSSTAT, FSINFO, PATHCONF, ACCESS
//!     permissions   rights of the user of a call; acl: POSIX ACLs
//!        |
//!      fs::Volume
//! ```
//!
//! Promises
//! - What RFC 1813 calls stable is durable when the reply leaves: every change of names and
//!   attributes, WRITE with DATA_SYNC or FILE_SYNC, and all earlier unstable writes of a file once
//!   its COMMIT is answered. The guarantee is that of `fsync` on the volume.
//! - The write verifier is another one after each start, so a client sends unstable writes again
//!   that a killed server had not committed.
//! - A file handle names volume, inode number and generation. It stays valid over restarts of the
//!   server, and is stale once its file is gone, also if the number is used again.
//! - Attributes before and behind a change (`wcc_data`) enclose no change by others.
//! - A call that waits for the device holds up no other call of its connection that does not.
//! - A hostile peer gets an error or is disconnected, and one that stalls holds up nobody else.
//!   Connections are at most [`CONNECTIONS_MAX`]; the memory of one is two records of
//!   [`RECORD_BYTES_MAX`] and one for each of its threads, of which there are at most 64 beside
//!   the first ones. A large read goes past the cache of the volume: clients have one.
//!
//! Assumptions: permissions are checked for the user that a call names (AUTH_SYS), whom anybody
//! who may connect can invent; so peers other than loopback have to be allowed ([`Rules`]).
//! ACLs are obeyed and inherited; clients do not see them. Locks (NLM) are not
//! served: mount with `nolock`.
//!
//! The crates nfsserve and nfs3_server are not used. Their FSSTAT is a constant, and they have no
//! LINK, MKNOD or reply cache and do not pass the caller on. They use one number for file handles
//! and write verifier, so a restart loses handles or unstable writes. 9P and virtiofs are not
//! served, because their crates export only directories of the host, and NFS reaches the same
//! clients.
//!
//! Encoding of results is the crate `nfs3_types`; arguments are decoded here, since its decoder
//! allocates what a length field says before it looks at the input. Tested in `tests/it`, with two
//! clients written by others.

#![forbid(unsafe_code)]

mod allowed;
mod arguments;
mod connection;
mod convert;
mod duplicates;
mod export;
mod files;
mod info;
mod listing;
#[cfg(target_os = "linux")]
mod local;
#[cfg(not(target_os = "linux"))]
#[path = "strangers.rs"]
mod local;
mod mount;
mod names;
mod permissions;
mod record;
mod rpc;
mod server;

pub use allowed::Allowed;
pub use record::RECORD_BYTES_MAX;
pub use server::{CONNECTIONS_MAX, PROTOCOL, Rules, Server};
