//! A volume over NFS version 3 (RFC 1813), for systems and sandboxes without FUSE.
//!
//! ```text
//!   Linux, macOS, BSD clients, libnfs        one TCP port for MOUNT and NFS, no portmapper
//!        |  records (RFC 5531)
//!     server      one thread a connection; the accepting thread also calls tick()
//!       rpc       calls and replies; mount: the MOUNT protocol
//!     duplicates  replies to calls that must not run twice
//!     export      handles -> inodes, attributes before and after
//!       files     read, write, commit, attributes      names    create, remove, rename, link
//!       listing   READDIR, READDIRPLUS                  info     FSSTAT, FSINFO, PATHCONF, ACCESS
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
//! - A hostile peer gets an error or is disconnected. Memory for a connection is at most three
//!   records of [`RECORD_BYTES_MAX`]; connections are at most [`CONNECTIONS_MAX`].
//!
//! Assumptions: permissions are the client's business, as on a disk that it was given: who may
//! connect may change everything, and new files belong to the user that the client names
//! (AUTH_SYS). Peers other than loopback have to be allowed by address ([`Allowed`]). Locks (NLM)
//! are not served: mount with `nolock`.
//!
//! Encoding of results is the crate `nfs3_types`; arguments are decoded here, since its decoder
//! allocates what a length field says before it looks at the input. Tested in `tests/it`, with two
//! clients written by others.

#![forbid(unsafe_code)]

mod allowed;
mod arguments;
mod convert;
mod duplicates;
mod export;
mod files;
mod info;
mod listing;
mod mount;
mod names;
mod rpc;
mod server;

pub use allowed::Allowed;
pub use rpc::RECORD_BYTES_MAX;
pub use server::{CONNECTIONS_MAX, Server};
