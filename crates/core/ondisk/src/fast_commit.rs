//! Fast commits: tags in the blocks behind the log of a journal with `fast_commit`.
//!
//! ```text
//!  tag      0 tag  2 length of the value  4 value ...            little-endian, unlike the log
//!  area     [HEAD INODE CREAT ... TAIL][ADD_RANGE INODE PAD | ... TAIL][... TAIL]
//!           one fast commit begins on a block boundary; PAD fills a block, TAIL the last one
//! ```
//!
//! The crc32c in TAIL covers its fast commit from the end of the one before up to itself. All fast
//! commits of an area belong to one transaction, whose sequence HEAD and TAIL carry; a full commit
//! of it makes them void. [`frames`] splits bytes into tags without looking at values, for whoever
//! searches the end of the area; [`Tag::decode`] reads a value and checks it. Tested in
//! `tests/it/fast_commit.rs`.

use crate::bytes::{le16, le32};
use crate::checksum::crc32c;
use crate::error::{OndiskError, Result};
use crate::extent::{Extent, LOGICAL_END};
use crate::inode::GOOD_OLD_INODE_SIZE;

const WHAT: &str = "fast commit";
/// Bytes before a value.
pub const TAG_BYTES: usize = 4;
/// Longest name of a directory entry, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// `EXT4_FC_TAG_ADD_RANGE`: blocks of a file.
pub const ADD_RANGE: u16 = 1;
/// `EXT4_FC_TAG_DEL_RANGE`: a hole in a file.
pub const DEL_RANGE: u16 = 2;
/// `EXT4_FC_TAG_CREAT`: the first name of a new inode.
pub const CREAT: u16 = 3;
/// `EXT4_FC_TAG_LINK`: a name.
pub const LINK: u16 = 4;
/// `EXT4_FC_TAG_UNLINK`: a name that is gone.
pub const UNLINK: u16 = 5;
/// `EXT4_FC_TAG_INODE`: the slot of an inode.
pub const INODE: u16 = 6;
/// `EXT4_FC_TAG_PAD`: nothing.
pub const PAD: u16 = 7;
/// `EXT4_FC_TAG_TAIL`: end of a fast commit.
pub const TAIL: u16 = 8;
/// `EXT4_FC_TAG_HEAD`: start of the area.
pub const HEAD: u16 = 9;

/// A tag whose value has not been looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Number of the tag.
    pub tag: u16,
    /// Its value.
    pub value: &'a [u8],
    /// Tag, length and value.
    pub bytes: &'a [u8],
    /// Offset of `bytes` in what was split.
    pub offset: usize,
}

/// The tags of one block, in order. Ends before a tag that does not fit; [`Frames::is_broken`] says
/// whether it did.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    block: &'a [u8],
    at: usize,
    broken: bool,
}

/// Splits a block of the area.
#[must_use]
pub fn frames(block: &[u8]) -> Frames<'_> {
    Frames { block, at: 0, broken: false }
}

impl Frames<'_> {
    /// True if the tags ended with one that is longer than the block.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.broken
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Frame<'a>;

    fn next(&mut self) -> Option<Frame<'a>> {
        let rest = self.block.get(self.at..)?;
        if self.broken || rest.len() < TAG_BYTES {
            return None;
        }
        let len = TAG_BYTES + usize::from(le16(rest, 2));
        let (Some(bytes), Some(value)) = (rest.get(..len), rest.get(TAG_BYTES..len)) else {
            self.broken = true;
            return None;
        };
        let offset = self.at;
        self.at += len;
        Some(Frame { tag: le16(rest, 0), value, bytes, offset })
    }
}

impl Frame<'_> {
    /// Sequence that HEAD and TAIL carry.
    #[must_use]
    pub fn tid(&self) -> Option<u32> {
        match self.tag {
            HEAD if self.value.len() == 8 => Some(le32(self.value, 4)),
            TAIL if self.value.len() >= 8 => Some(le32(self.value, 0)),
            _ => None,
        }
    }

    /// Feature bits that a HEAD says a reader must know; none are defined.
    #[must_use]
    pub fn features(&self) -> u32 {
        if self.tag == HEAD && self.value.len() == 8 { le32(self.value, 0) } else { 0 }
    }

    /// The checksum of a fast commit with this tag, `crc` being that of its tags before. A new fast
    /// commit begins with 0.
    #[must_use]
    pub fn checksum(&self, crc: u32) -> u32 {
        let covered = if self.tag == TAIL { self.bytes.get(..8) } else { None };
        crc32c(crc, covered.unwrap_or(self.bytes))
    }

    /// True if it is a TAIL that carries this checksum.
    #[must_use]
    pub fn seals(&self, crc: u32) -> bool {
        self.tag == TAIL && self.value.len() >= 8 && le32(self.value, 4) == crc
    }
}

/// A name in a directory, of CREAT, LINK and UNLINK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameOf<'a> {
    /// Directory.
    pub parent: u32,
    /// Inode.
    pub ino: u32,
    /// 1 to 255 bytes, no `/`, no NUL, not `.` or `..`.
    pub name: &'a [u8],
}

/// A tag with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag<'a> {
    /// Logical blocks of a file and where they are. Not empty, within what a file can have.
    AddRange {
        /// File.
        ino: u32,
        /// Blocks.
        extent: Extent,
    },
    /// Logical blocks `first..end` of a file are a hole.
    DelRange {
        /// File.
        ino: u32,
        /// First logical block.
        first: u32,
        /// One past the last, at most `u32::MAX`.
        end: u32,
    },
    /// The first name of a new inode.
    Create(NameOf<'a>),
    /// A name.
    Link(NameOf<'a>),
    /// A name that is gone.
    Unlink(NameOf<'a>),
    /// The slot of an inode: 128 bytes and its extra fields, at most the inode size.
    Inode {
        /// Inode.
        ino: u32,
        /// Bytes of its slot.
        raw: &'a [u8],
    },
    /// Nothing to replay: PAD and HEAD.
    Nothing,
    /// End of a fast commit.
    Tail,
}

impl<'a> Tag<'a> {
    /// Reads a tag of a file system with slots of `inode_size` bytes.
    ///
    /// # Errors
    /// Corrupt: a length or value that cannot be. Unsupported: an unknown tag.
    pub fn decode(frame: &Frame<'a>, inode_size: usize) -> Result<Tag<'a>> {
        let value = frame.value;
        let bad = |detail: String| {
            let detail = format!("tag {}: {detail}", frame.tag);
            Err(OndiskError::corrupt_at(WHAT, frame.offset, detail))
        };
        let (needed, exact) = match frame.tag {
            ADD_RANGE => (16, true),
            DEL_RANGE => (12, true),
            HEAD => (8, true),
            TAIL | CREAT | LINK | UNLINK => (8, false),
            INODE => (4 + GOOD_OLD_INODE_SIZE, false),
            _ => (0, false),
        };
        if value.len() < needed || exact && value.len() != needed {
            return bad(format!("{} bytes", value.len()));
        }
        let ino = le32(value, 0);
        match frame.tag {
            ADD_RANGE => {
                let extent = Extent::decode(value, 4);
                if extent.len == 0 || extent.end() >= LOGICAL_END {
                    return bad(format!("{} blocks from {}", extent.len, extent.block));
                }
                Ok(Tag::AddRange { ino, extent })
            }
            DEL_RANGE => {
                let (first, len) = (le32(value, 4), le32(value, 8));
                let end = u64::from(first) + u64::from(len);
                if end > LOGICAL_END {
                    return bad(format!("{len} blocks from {first}"));
                }
                // The last block that a number can name belongs to no file.
                let end = u32::try_from(end).unwrap_or(u32::MAX);
                Ok(Tag::DelRange { ino, first, end })
            }
            CREAT | LINK | UNLINK => {
                let name = value.get(8..).unwrap_or(&[]);
                let is_odd = name.iter().any(|byte| *byte == b'/' || *byte == 0);
                if name.is_empty() || name.len() > NAME_BYTES_MAX || is_odd {
                    return bad(format!("a name of {} bytes", name.len()));
                }
                if name == b"." || name == b".." {
                    return bad("the name of a dot entry".to_owned());
                }
                let of = NameOf { parent: ino, ino: le32(value, 4), name };
                Ok(match frame.tag {
                    CREAT => Tag::Create(of),
                    LINK => Tag::Link(of),
                    _ => Tag::Unlink(of),
                })
            }
            INODE => {
                let raw = value.get(4..).unwrap_or(&[]);
                if raw.len() > inode_size {
                    return bad(format!("{} bytes of an inode", raw.len()));
                }
                Ok(Tag::Inode { ino, raw })
            }
            PAD | HEAD => Ok(Tag::Nothing),
            TAIL => Ok(Tag::Tail),
            other => Err(OndiskError::Unsupported {
                feature: format!("fast_commit tag {other}"),
                detail: "mount it once with the Linux that wrote it".into(),
            }),
        }
    }
}
