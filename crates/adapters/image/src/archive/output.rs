//! A tree of a volume as an archive.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;

use syncline_fs::bits;
use tar::{EntryType, Header};

use super::BLOCK_BYTES;
use super::pax::{self, Records};
use crate::copy::Outcome;
use crate::copy::measure_tree as measure;
use crate::copy::side::{Kind, Meta, Reader, Side};
use crate::names::join;
use crate::{ImageError, Result, Watch};

/// Bytes moved at once.
const CHUNK_BYTES: usize = 1 << 20;
/// Largest numbers of eight and of twelve bytes, octal.
const OWNER_MAX: u64 = 0o777_7777;
const SIZE_MAX: u64 = 0o777_7777_7777;
const NAME_BYTES: usize = 100;

/// Takes an archive.
pub trait Sink: Write {
    /// Takes a part of a file that it reads by itself: from byte `start` on `len` bytes. False:
    /// they have to be read and written.
    ///
    /// # Errors
    /// That of looking where the file is, or of taking it.
    fn take(&mut self, path: &[u8], start: u64, len: u64) -> Result<bool>;
}

/// Takes bytes only.
struct Bytes<'a>(&'a mut dyn Write);

impl Write for Bytes<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl Sink for Bytes<'_> {
    fn take(&mut self, _: &[u8], _: u64, _: u64) -> Result<bool> {
        Ok(false)
    }
}

struct Writer<'a> {
    from: &'a dyn Side,
    out: &'a mut dyn Sink,
    watch: &'a dyn Watch,
    /// Members of inodes with several names.
    links: BTreeMap<(u64, u64), Vec<u8>>,
    outcome: Outcome,
}

/// Writes what is below `path` of an image as a tar archive: names sorted, `./` first. Files are
/// left out only of an image that is read past its damage.
///
/// # Errors
/// The error of a read or write, or an image whose directories form a cycle.
pub fn export(
    from: &crate::Image,
    path: &[u8],
    out: &mut dyn Write,
    watch: &dyn Watch,
) -> Result<Outcome> {
    export_to(from, path, &mut Bytes(out), watch)
}

/// As [`export`], for a sink that can read parts of the image by itself.
///
/// # Errors
/// As [`export`].
pub fn export_to(
    from: &crate::Image,
    path: &[u8],
    out: &mut dyn Sink,
    watch: &dyn Watch,
) -> Result<Outcome> {
    let side = from.side(0, "image");
    if watch.wants_total() {
        watch.total(measure(&side, path, true, watch));
    }
    let outcome = Outcome::default();
    let mut writer = Writer { from: &side, out, watch, links: BTreeMap::new(), outcome };
    writer.tree(path)?;
    // Two empty blocks end an archive.
    writer.put(&[0; 2 * BLOCK_BYTES])?;
    Ok(writer.outcome)
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(|err| match err.kind() {
            // Who reads it has enough.
            std::io::ErrorKind::BrokenPipe => ImageError::Stopped,
            _ => match ImageError::host(Path::new("the archive"), &err) {
                ImageError::Failed(text) => ImageError::Final(text),
                other => other,
            },
        })
    }

    /// Depth first, without recursion: depth is the image's choice.
    fn tree(&mut self, root: &[u8]) -> Result<()> {
        let mut entered = BTreeSet::new();
        let mut left = vec![(root.to_vec(), b".".to_vec())];
        while let Some((path, name)) = left.pop() {
            self.watch.check()?;
            match self.entry(&path, name, &mut entered, &mut left) {
                // Without a header nothing of it is in the archive.
                Err(err @ (ImageError::Stopped | ImageError::Final(_))) => return Err(err),
                Err(err) if self.from.is_rescued() => self.note(err),
                done => done?,
            }
            self.from.missing().into_iter().for_each(|what| self.note(ImageError::Corrupt(what)));
        }
        Ok(())
    }

    fn note(&mut self, failure: ImageError) {
        self.outcome.failures += 1;
        self.watch.remark(&failure.to_string());
        self.outcome.first.get_or_insert(failure);
    }

    /// One entry; what is in a directory is put on `left`.
    fn entry(
        &mut self,
        path: &[u8],
        name: Vec<u8>,
        entered: &mut BTreeSet<(u64, u64)>,
        left: &mut Vec<(Vec<u8>, Vec<u8>)>,
    ) -> Result<()> {
        let Some(meta) = self.from.stat(path, false)? else {
            let shown = path.escape_ascii();
            let text = format!("{shown}: no such file; list its directory with `syncline ls`");
            return Err(ImageError::Failed(text));
        };
        if meta.kind() == Kind::Dir {
            if !entered.insert(meta.id) {
                let text = "a directory with two names; run `syncline check` on the image";
                return Err(ImageError::Corrupt(text.into()).at(path.escape_ascii()));
            }
            let names = self.from.list(path)?;
            left.extend(names.iter().rev().map(|n| (join(path, n), join(&name, n))));
        }
        // A single file goes under its own name.
        let name = match (name.as_slice(), meta.kind()) {
            (b".", Kind::Dir) => b"./".to_vec(),
            (b".", _) => path.rsplit(|b| *b == b'/').next().unwrap_or(path).to_vec(),
            (_, Kind::Dir) => [&name[..], b"/"].concat(),
            _ => name,
        };
        self.member(path, &name, &meta)
    }

    fn member(&mut self, path: &[u8], name: &[u8], meta: &Meta) -> Result<()> {
        let mut records = Records::new();
        let mut header = Header::new_ustar();
        let shared = meta.nlink > 1 && meta.kind() != Kind::Dir;
        if let Some(first) = self.links.get(&meta.id).cloned().filter(|_| shared) {
            header.set_entry_type(EntryType::Link);
            link(&mut header, &first, &mut records);
            return self.finish(&mut header, name, meta, 0, records);
        }
        if shared {
            self.links.insert(meta.id, name.to_vec());
        }
        records.extend(super::attributes::write(self.from.xattrs(path)?));
        let kind = match meta.file_type() {
            bits::S_IFREG => return self.file(path, name, meta, records),
            bits::S_IFDIR => EntryType::Directory,
            bits::S_IFLNK => {
                link(&mut header, &self.from.read_link(path)?, &mut records);
                EntryType::Symlink
            }
            bits::S_IFCHR => EntryType::Char,
            bits::S_IFBLK => EntryType::Block,
            bits::S_IFIFO => EntryType::Fifo,
            _ => {
                let shown = path.escape_ascii();
                self.watch.remark(&format!("{shown}: left out, archives have no sockets"));
                return Ok(());
            }
        };
        header.set_entry_type(kind);
        if matches!(kind, EntryType::Char | EntryType::Block) {
            let numbers = syncline_fs::device_numbers(meta.rdev);
            let set = header
                .set_device_major(numbers.0)
                .and_then(|()| header.set_device_minor(numbers.1));
            set.map_err(|err| ImageError::host(Path::new("the archive"), &err))?;
        }
        self.finish(&mut header, name, meta, 0, records)
    }

    /// A file; with a map in front if it has holes.
    fn file(&mut self, path: &[u8], name: &[u8], meta: &Meta, mut records: Records) -> Result<()> {
        let mut reader = self.from.open(path)?;
        let mut runs = Vec::new();
        let mut at = 0;
        while let Some((start, stop)) = reader.data(at)? {
            let stop = stop.min(meta.size);
            if start >= stop {
                break;
            }
            runs.push((start, stop - start));
            at = stop;
        }
        let data: u64 = runs.iter().map(|(_, len)| len).sum();
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::Regular);
        if data == meta.size {
            self.finish(&mut header, name, meta, data, records)?;
        } else {
            if runs.last().is_none_or(|(start, len)| start + len < meta.size) {
                // GNU tar ends a map with an empty run at the end of the file.
                runs.push((meta.size, 0));
            }
            let mut map = format!("{}\n", runs.len());
            runs.iter().for_each(|(start, len)| map += &format!("{start}\n{len}\n"));
            let mut map = map.into_bytes();
            map.resize(map.len().next_multiple_of(BLOCK_BYTES), 0);
            let number = |n: u64| n.to_string().into_bytes();
            records.push((b"GNU.sparse.major".to_vec(), number(1)));
            records.push((b"GNU.sparse.minor".to_vec(), number(0)));
            records.push((b"GNU.sparse.name".to_vec(), name.to_vec()));
            records.push((b"GNU.sparse.realsize".to_vec(), number(meta.size)));
            let last = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
            let stored = [&b"GNUSparseFile.0/"[..], last].concat();
            self.finish(&mut header, &stored, meta, data + map.len() as u64, records)?;
            self.put(&map)?;
        }
        self.data(path, &mut *reader, &runs)?;
        let padding = data.next_multiple_of(BLOCK_BYTES as u64) - data;
        self.put(&[0; BLOCK_BYTES][..usize::try_from(padding).unwrap_or(0)])
    }

    fn data(&mut self, path: &[u8], reader: &mut dyn Reader, runs: &[(u64, u64)]) -> Result<()> {
        let mut chunk = vec![0; CHUNK_BYTES];
        for (start, len) in runs {
            if self.out.take(path, *start, *len)? {
                self.watch.copied(*len);
                continue;
            }
            let mut done = 0;
            while done < *len {
                self.watch.check()?;
                let want = usize::try_from(len - done).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
                let part = chunk.get_mut(..want).unwrap_or(&mut []);
                if reader.read(start + done, part)? < want {
                    let text = "shrank while it was read; run the command again";
                    return Err(ImageError::Failed(text.into()).at(path.escape_ascii()));
                }
                self.put(part)?;
                self.watch.copied(want as u64);
                done += want as u64;
            }
        }
        Ok(())
    }

    /// Writes the header, with an extended one in front for what does not fit.
    fn finish(
        &mut self,
        header: &mut Header,
        name: &[u8],
        meta: &Meta,
        size: u64,
        mut records: Records,
    ) -> Result<()> {
        let text = |n: u64| n.to_string().into_bytes();
        put_name(&mut header.as_old_mut().name, name, b"path", &mut records);
        header.set_mode(meta.mode & 0o7777);
        for (key, id) in [(&b"uid"[..], meta.uid), (b"gid", meta.gid)] {
            let id = u64::from(id);
            let stored = if id > OWNER_MAX { 0 } else { id };
            if key == b"uid" {
                header.set_uid(stored)
            } else {
                header.set_gid(stored)
            }
            if id > OWNER_MAX {
                records.push((key.to_vec(), text(id)));
            }
        }
        header.set_size(size);
        if size > SIZE_MAX {
            records.push((b"size".to_vec(), text(size)));
        }
        let (seconds, nanos) = meta.mtime;
        let stored = u64::try_from(seconds).ok().filter(|s| *s <= SIZE_MAX);
        header.set_mtime(stored.unwrap_or(0));
        if nanos != 0 || stored.is_none() {
            records.push((b"mtime".to_vec(), pax::time_text(meta.mtime).into_bytes()));
        }
        header.set_cksum();
        if !records.is_empty() {
            let bytes = pax::encode(&records);
            let mut extended = Header::new_ustar();
            extended.set_entry_type(EntryType::XHeader);
            // A fixed name: the archive depends on the tree alone.
            put_name(&mut extended.as_old_mut().name, b"PaxHeader", b"path", &mut Records::new());
            extended.set_mode(0o644);
            extended.set_uid(0);
            extended.set_gid(0);
            extended.set_mtime(0);
            extended.set_size(bytes.len() as u64);
            extended.set_cksum();
            self.put(extended.as_bytes())?;
            self.put(&bytes)?;
            let padding = bytes.len().next_multiple_of(BLOCK_BYTES) - bytes.len();
            self.put(&[0; BLOCK_BYTES][..padding])?;
        }
        self.put(header.as_bytes())
    }
}

/// A name in its field; a long one in an extended header, and its start in the field.
fn put_name(field: &mut [u8; NAME_BYTES], name: &[u8], key: &[u8], records: &mut Records) {
    field.fill(0);
    field.iter_mut().zip(name).for_each(|(into, from)| *into = *from);
    if name.len() > NAME_BYTES {
        records.push((key.to_vec(), name.to_vec()));
    }
}

fn link(header: &mut Header, target: &[u8], records: &mut Records) {
    put_name(&mut header.as_old_mut().linkname, target, b"linkpath", records);
}
