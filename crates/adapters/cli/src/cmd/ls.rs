//! `ls`: directories of an image.

use std::ffi::OsString;

use syncline_fs::{Attr, InodeRef, Volume};
use syncline_image::names::join;

use crate::args::Ls;
use crate::error::{Failure, Result};
use crate::format::{self, Out};
use crate::image::{self, Access, Place};

/// Lists each path.
pub(crate) fn run(args: &Ls) -> Result<()> {
    let mut out = Out::new();
    let headings = args.recursive || args.paths.len() > 1;
    let mut first = true;
    let paths: Vec<OsString> = args.paths.iter().map(whole).collect();
    let done =
        image::for_each(&paths, &args.part, Access::Read(args.rescued), &mut |vol, place| {
            let outcome = Ok(());
            let mut listing =
                Listing { args, vol, out: &mut out, headings, first: &mut first, outcome };
            listing.list(place).and(listing.outcome)
        });
    out.flush().and(done)
}

/// An image without a path means its root directory.
fn whole(argument: &OsString) -> OsString {
    let is_image = std::fs::metadata(argument).is_ok_and(|meta| !meta.is_dir());
    if Place::split(argument).is_some() || !is_image {
        return argument.clone();
    }
    Place { image: argument.into(), path: b"/".to_vec() }.argument()
}

/// Lists places of an open volume.
pub(super) fn list(args: &Ls, vol: &Volume, places: &[Place], out: &mut Out) -> Result<()> {
    let (headings, mut first) = (args.recursive || places.len() > 1, true);
    let mut listing = Listing { args, vol, out, headings, first: &mut first, outcome: Ok(()) };
    places
        .iter()
        .try_for_each(|place| listing.list(place).map_err(|err| err.at(place.shown())))
        .and(listing.outcome)
}

struct Listing<'a> {
    args: &'a Ls,
    vol: &'a Volume,
    out: &'a mut Out,
    headings: bool,
    first: &'a mut bool,
    /// The first failure of an inode.
    outcome: Result<()>,
}

/// One line.
struct Line {
    name: Vec<u8>,
    ino: u32,
    /// With `-l`.
    attr: Option<(Attr, Option<Vec<u8>>)>,
    /// The inode cannot be read.
    is_broken: bool,
}

/// Names and numbers of directories in a directory.
type Below = Vec<(Vec<u8>, u32)>;

impl Listing<'_> {
    fn list(&mut self, place: &Place) -> Result<()> {
        let named = self.vol.resolve_nofollow(&place.path)?;
        if self.args.directory || !named.is_dir() {
            // `ls link` lists the directory behind it, `ls -l link` the link.
            let behind = if self.args.long { None } else { self.vol.resolve(&place.path).ok() };
            match behind.filter(|inode| inode.is_dir() && !self.args.directory) {
                Some(dir) => return self.tree(dir, place.path.clone()),
                None => {
                    let line = self.line(&named, place.path.clone())?;
                    return self.print(vec![line]);
                }
            }
        }
        self.tree(named, place.path.clone())
    }

    /// A directory and, with `-R`, what is below it. Depth first, without recursion.
    fn tree(&mut self, dir: InodeRef, path: Vec<u8>) -> Result<()> {
        let mut left = vec![(dir.ino, path)];
        // Directories have one parent; an image that says otherwise must not make this go round.
        let mut seen = std::collections::BTreeSet::new();
        while let Some((ino, path)) = left.pop() {
            crate::interrupt::check()?;
            if !seen.insert(ino) {
                continue;
            }
            let Some(dir) = self.inode(ino, &path)? else { continue };
            if self.headings {
                if !std::mem::take(self.first) {
                    self.out.text("\n")?;
                }
                self.out.bytes(&format::name(&path))?;
                self.out.text(":\n")?;
            }
            let (lines, below) = self.read(&dir)?;
            self.print(lines)?;
            if self.args.recursive {
                left.extend(below.into_iter().rev().map(|(name, ino)| (ino, join(&path, &name))));
            }
        }
        Ok(())
    }

    /// An inode; `None` if it cannot be read, which is a failure for later.
    fn inode(&mut self, ino: u32, name: &[u8]) -> Result<Option<InodeRef>> {
        match self.vol.iget(ino) {
            Ok(inode) => Ok(Some(inode)),
            Err(err) => {
                let failure = Failure::from(err).at(name.escape_ascii());
                image::fail(&mut self.outcome, failure)?;
                Ok(None)
            }
        }
    }

    fn read(&mut self, dir: &InodeRef) -> Result<(Vec<Line>, Below)> {
        let mut names = Vec::new();
        self.vol.readdir(dir, 0, &mut |entry| {
            names.push((entry.name.to_vec(), entry.ino, entry.kind));
            true
        })?;
        names.retain(|(name, _, _)| self.args.all || !name.starts_with(b"."));
        names.sort();
        let (mut lines, mut below) = (Vec::with_capacity(names.len()), Vec::new());
        for (name, ino, kind) in names {
            use syncline_fs::FileKind::{Directory, Unknown};
            let dot = name == b"." || name == b"..";
            if self.args.long || self.args.recursive && kind == Unknown {
                let Some(inode) = self.inode(ino, &name)? else {
                    lines.push(Line { name, ino, attr: None, is_broken: true });
                    continue;
                };
                if inode.is_dir() && !dot {
                    below.push((name.clone(), ino));
                }
                lines.push(self.line(&inode, name)?);
                continue;
            }
            if kind == Directory && !dot {
                below.push((name.clone(), ino));
            }
            lines.push(Line { name, ino, attr: None, is_broken: false });
        }
        Ok((lines, below))
    }

    fn line(&self, inode: &InodeRef, name: Vec<u8>) -> Result<Line> {
        if !self.args.long {
            return Ok(Line { name, ino: inode.ino, attr: None, is_broken: false });
        }
        let target = if inode.is_symlink() { Some(self.vol.readlink(inode)?) } else { None };
        let attr = Some((self.vol.getattr(inode), target));
        Ok(Line { name, ino: inode.ino, attr, is_broken: false })
    }

    fn print(&mut self, lines: Vec<Line>) -> Result<()> {
        let columns: Vec<Vec<String>> = lines.iter().map(|line| self.columns(line)).collect();
        let count = columns.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..count)
            .map(|nr| columns.iter().filter_map(|row| row.get(nr)).map(String::len).max())
            .map(|width| width.unwrap_or(0))
            .collect();
        for (line, row) in lines.iter().zip(&columns) {
            for (cell, width) in row.iter().zip(&widths) {
                self.out.text(format!("{cell:>width$} "))?;
            }
            self.out.bytes(&format::name(&line.name))?;
            if let Some((_, Some(target))) = &line.attr {
                self.out.text(" -> ")?;
                self.out.bytes(&format::name(target))?;
            }
            self.out.text("\n")?;
        }
        Ok(())
    }

    fn columns(&self, line: &Line) -> Vec<String> {
        let mut row = Vec::new();
        if self.args.inode {
            row.push(line.ino.to_string());
        }
        if line.is_broken && self.args.long {
            row.extend(["-?????????", "?", "?", "?", "?", "?"].map(str::to_owned));
        }
        let Some((attr, _)) = &line.attr else { return row };
        row.push(format::mode(attr.mode));
        row.push(attr.nlink.to_string());
        row.push(attr.uid.to_string());
        row.push(attr.gid.to_string());
        row.push(match attr.mode & 0o170_000 {
            0o020_000 | 0o060_000 => {
                let (major, minor) = syncline_fs::device_numbers(attr.rdev);
                format!("{major},{minor}")
            }
            _ if self.args.human_readable => format::short_size(attr.size),
            _ => attr.size.to_string(),
        });
        row.push(format::seconds(attr.mtime.seconds));
        row
    }
}
