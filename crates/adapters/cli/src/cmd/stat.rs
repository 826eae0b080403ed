//! `stat`: everything about a file, as stat(1) shows it, with attributes, flags and extents.

use syncline_fs::{Attr, InodeRef, Volume};

use crate::args::Stat;
use crate::error::Result;
use crate::format::{self, Out};
use crate::image::{self, Access, Place};

/// Letters of `lsattr`, by bit.
const FLAGS: &[(u32, char)] = &[
    (0x1, 's'),
    (0x2, 'u'),
    (0x4, 'c'),
    (0x8, 'S'),
    (0x10, 'i'),
    (0x20, 'a'),
    (0x40, 'd'),
    (0x80, 'A'),
    (0x800, 'E'),
    (0x1000, 'I'),
    (0x4000, 'j'),
    (0x8000, 't'),
    (0x1_0000, 'D'),
    (0x2_0000, 'T'),
    (0x8_0000, 'e'),
    (0x10_0000, 'V'),
    (0x1000_0000, 'N'),
    (0x2000_0000, 'P'),
    (0x4000_0000, 'F'),
];

/// Shows each path.
pub(crate) fn run(args: &Stat) -> Result<()> {
    let mut out = Out::new();
    let done =
        image::for_each(&args.paths, &args.part, Access::Read(args.rescued), &mut |vol, place| {
            show(vol, place, args.extents, &mut out)
        });
    out.flush().and(done)
}

pub(super) fn show(vol: &Volume, place: &Place, extents: bool, out: &mut Out) -> Result<()> {
    let inode = vol.resolve_nofollow(&place.path)?;
    let attr = vol.getattr(&inode);
    out.text("  File: ")?;
    out.bytes(&format::name(&place.path))?;
    if inode.is_symlink() {
        out.text(" -> ")?;
        out.bytes(&format::name(&vol.readlink(&inode)?))?;
    }
    out.text("\n")?;
    out.text(fields(&attr))?;
    for name in vol.listxattr(&inode)? {
        let len = vol.getxattr(&inode, &name)?.len();
        out.text(" Xattr: ")?;
        out.bytes(&format::name(&name))?;
        out.text(format!(" ({len} bytes)\n"))?;
    }
    if extents {
        show_extents(vol, &inode, &attr, out)?;
    }
    Ok(())
}

fn fields(attr: &Attr) -> String {
    let Attr { ino, mode, uid, gid, nlink, size, blocks, blksize, .. } = *attr;
    let letters: String =
        FLAGS.iter().filter(|(bit, _)| attr.flags & bit != 0).map(|(_, letter)| letter).collect();
    let device = match mode & 0o170_000 {
        0o020_000 | 0o060_000 => {
            let (major, minor) = syncline_fs::device_numbers(attr.rdev);
            format!("\tDevice type: {major},{minor}")
        }
        _ => String::new(),
    };
    format!(
        "  Size: {size}\tBlocks: {blocks}\tIO Block: {blksize}\t{}\n\
         \x20Inode: {ino}\tLinks: {nlink}{device}\n\
         Access: ({:04o}/{})\tUid: {uid}\tGid: {gid}\n\
         Access: {}\nModify: {}\nChange: {}\n Birth: {}\n\
         \x20Flags: {letters} ({:#x})\tGeneration: {}\n",
        kind(mode, size),
        mode & 0o7777,
        format::mode(mode),
        format::time(attr.atime),
        format::time(attr.mtime),
        format::time(attr.ctime),
        format::time(attr.crtime),
        attr.flags,
        attr.generation,
    )
}

fn kind(mode: u16, size: u64) -> &'static str {
    match mode & 0o170_000 {
        0o100_000 if size == 0 => "regular empty file",
        0o100_000 => "regular file",
        0o040_000 => "directory",
        0o120_000 => "symbolic link",
        0o020_000 => "character special file",
        0o060_000 => "block special file",
        0o010_000 => "fifo",
        0o140_000 => "socket",
        _ => "of no known type",
    }
}

fn show_extents(vol: &Volume, inode: &InodeRef, attr: &Attr, out: &mut Out) -> Result<()> {
    if !matches!(attr.mode & 0o170_000, 0o100_000 | 0o040_000) {
        return Ok(());
    }
    let found = vol.fiemap(inode, 0, u64::MAX)?;
    let header = ["extent", "logical", "physical", "length", "flags"].map(str::to_owned).to_vec();
    let mut rows = vec![header];
    for (nr, extent) in found.iter().enumerate() {
        let flags =
            [(extent.inline, "inline"), (extent.unwritten, "unwritten"), (extent.last, "last")];
        let flags: Vec<&str> =
            flags.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect();
        rows.push(vec![
            nr.to_string(),
            extent.logical.to_string(),
            extent.physical.to_string(),
            extent.len.to_string(),
            flags.join(","),
        ]);
    }
    out.text(format::table(&rows, &[true, true, true, true, false]))
}
