//! READDIR and READDIRPLUS.
//!
//! Cookies are the volume's: names that exist during a whole listing come exactly once, whatever
//! else changes. So the cookie verifier is constant.

use nfs3_types::nfs3::{
    Nfs3Option, READDIR3resfail, READDIR3resok, READDIRPLUS3resfail, READDIRPLUS3resok,
    cookieverf3, dirlist3, dirlistplus3, entry3, entryplus3, filename3, nfsstat3,
};
use nfs3_types::xdr_codec::{List, Opaque};
use syncline_fs::InodeRef;

use crate::arguments::Arguments;
use crate::convert::{Status, status};
use crate::export::{Caller, Export};
use crate::files::TRANSFER_BYTES_MAX;
use crate::permissions::{EXECUTE, READ};
use crate::rpc::{Reply, answer};

/// Bytes of a result without entries: status, attributes, verifier, ends.
const FRAME_BYTES: usize = 128;
/// Bytes of an entry without its name: mark, number, length of the name, cookie.
const ENTRY_BYTES: usize = 24;
/// The same with attributes and handle.
const ENTRY_PLUS_BYTES: usize = ENTRY_BYTES + 88 + 24;

/// A page of a directory, and whether it is the last.
struct Page {
    entries: Vec<entry3<'static>>,
    eof: bool,
}

impl Export {
    /// The entries from `cookie` on that fit, each taking `each` bytes and its name.
    fn page(&self, dir: &InodeRef, cookie: u64, bytes: u32, each: usize) -> Status<Page> {
        let mut left = bytes.min(TRANSFER_BYTES_MAX) as usize;
        left = left.checked_sub(FRAME_BYTES).ok_or(nfsstat3::NFS3ERR_TOOSMALL)?;
        let mut page = Page { entries: Vec::new(), eof: true };
        let read = self.volume.readdir(dir, cookie, &mut |entry| {
            let takes = each + entry.name.len().next_multiple_of(4);
            let Some(rest) = left.checked_sub(takes) else {
                page.eof = false;
                return false;
            };
            left = rest;
            page.entries.push(entry3 {
                fileid: u64::from(entry.ino),
                name: filename3(Opaque::owned(entry.name.to_vec())),
                cookie: entry.next_cookie,
            });
            true
        });
        read.map_err(|err| status(&err))?;
        let nothing_fits = page.entries.is_empty() && !page.eof;
        if nothing_fits { Err(nfsstat3::NFS3ERR_TOOSMALL) } else { Ok(page) }
    }

    pub(crate) fn readdir(&self, mut args: Arguments<'_>, caller: &Caller) -> Reply {
        let mut handle: &[u8] = &[];
        let done = (|| {
            handle = args.opaque()?;
            let (cookie, _, count) = (args.u64()?, args.verifier()?, args.u32()?);
            let dir = self.find(handle)?;
            self.check(caller, &dir, READ)?;
            let Page { entries, eof } = self.page(&dir, cookie, count, ENTRY_BYTES)?;
            Ok(READDIR3resok {
                dir_attributes: self.attributes(&dir),
                cookieverf: cookieverf3::default(),
                reply: dirlist3 { entries: List(entries), eof },
            })
        })();
        answer(done, || READDIR3resfail { dir_attributes: self.attributes_of(handle) })
    }

    pub(crate) fn readdirplus(&self, mut args: Arguments<'_>, caller: &Caller) -> Reply {
        let mut handle: &[u8] = &[];
        let done = (|| {
            handle = args.opaque()?;
            let (cookie, _) = (args.u64()?, args.verifier()?);
            let (_dircount, maxcount) = (args.u32()?, args.u32()?);
            let dir = self.find(handle)?;
            self.check(caller, &dir, READ)?;
            let Page { entries, eof } = self.page(&dir, cookie, maxcount, ENTRY_PLUS_BYTES)?;
            let searches = self.may(caller, &dir, EXECUTE);
            let entries = entries.into_iter().map(|entry| self.with_attributes(entry, searches));
            Ok(READDIRPLUS3resok {
                dir_attributes: self.attributes(&dir),
                cookieverf: cookieverf3::default(),
                reply: dirlistplus3 { entries: List(entries.collect()), eof },
            })
        })();
        answer(done, || READDIRPLUS3resfail { dir_attributes: self.attributes_of(handle) })
    }

    /// The entry, for a caller who `searches` the directory with handle and attributes, unless its
    /// file went away meanwhile.
    fn with_attributes(&self, entry: entry3<'static>, searches: bool) -> entryplus3<'static> {
        let number = u32::try_from(entry.fileid).unwrap_or(0);
        let found = self.volume.iget(number).ok().filter(|_| searches);
        let (name_handle, name_attributes) =
            found.map_or((Nfs3Option::None, Nfs3Option::None), |inode| self.object(&inode));
        entryplus3 {
            fileid: entry.fileid,
            name: entry.name,
            cookie: entry.cookie,
            name_attributes,
            name_handle,
        }
    }
}
