//! Requests: the header, and the fields of the structure behind it.

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::caller::Caller;
use crate::convert;
use crate::handle::Handle;

/// `struct fuse_in_header`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) opcode: u32,
    pub(crate) unique: u64,
    /// The kernel's number of an inode.
    pub(crate) node: u64,
    pub(crate) caller: Caller,
}

impl Header {
    pub(crate) const BYTES: usize = 40;

    /// The header at the beginning of `bytes`, if all of it is there.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Header> {
        let mut body = Body::whole(bytes.get(..Header::BYTES)?);
        let mut word = || body.scalar().map(u32::from_ne_bytes).ok();
        let (_len, opcode) = (word()?, word()?);
        let mut long = || body.scalar().map(u64::from_ne_bytes).ok();
        let (unique, node) = (long()?, long()?);
        let mut word = || body.scalar().map(u32::from_ne_bytes).ok();
        let (uid, gid, thread) = (word()?, word()?, word()?);
        Some(Header { opcode, unique, node, caller: Caller { thread, uid, gid } })
    }
}

/// The rest of a request, of which fields are taken one after the other.
pub(crate) struct Body<'a> {
    fixed: &'a [u8],
    /// Names and data, if they are not behind `fixed`.
    rest: Option<&'a [u8]>,
}

impl<'a> Body<'a> {
    /// Names and data are behind the structure.
    pub(crate) fn whole(bytes: &'a [u8]) -> Body<'a> {
        Body { fixed: bytes, rest: None }
    }

    /// Names and data have a place of their own.
    pub(crate) fn split(fixed: &'a [u8], rest: &'a [u8]) -> Body<'a> {
        Body { fixed, rest: Some(rest) }
    }

    /// The next bytes of the structure.
    pub(crate) fn scalar<const N: usize>(&mut self) -> Result<[u8; N], Errno> {
        let (head, tail) = self.fixed.split_first_chunk().ok_or(Errno::INVAL)?;
        self.fixed = tail;
        Ok(*head)
    }

    fn rest(&mut self) -> &mut &'a [u8] {
        self.rest.as_mut().unwrap_or(&mut self.fixed)
    }
}

/// A field of a request: its form in the structure, and our type of it.
pub(crate) trait Field<'a> {
    type Taken;

    /// Takes the field from the front of `body`.
    ///
    /// # Errors
    /// The number that answers the request, if it ends before the field or means nothing of ours.
    fn take(body: &mut Body<'a>) -> Result<Self::Taken, Errno>;
}

/// Fields of the structure: form, our type, and conversion.
macro_rules! fields {
    ($($form:ty => $taken:ty, $from:ty { $convert:expr })*) => {
        $(impl<'a> Field<'a> for $form {
            type Taken = $taken;

            fn take(body: &mut Body<'a>) -> Result<$taken, Errno> {
                let convert: fn($from) -> Result<$taken, Errno> = $convert;
                convert(<$from>::from_ne_bytes(body.scalar()?))
            }
        })*
    };
}

fields! {
    u32 => u32, u32 { Ok }
    i32 => i32, i32 { Ok }
    u64 => u64, u64 { Ok }
    i64 => i64, i64 { Ok }
    Handle => Handle, u64 { |number| Ok(Handle::from(number)) }
    OFlags => OFlags, u32 { |flags| Ok(OFlags::from_bits_retain(flags)) }
    Node => u32, u64 { convert::ino }
    Offset => u64, u64 { |at| if i64::try_from(at).is_ok() { Ok(at) } else { Err(Errno::INVAL) } }
    Zero => (), u32 { |_| Ok(()) }
}

/// The number of an inode.
pub(crate) struct Node;

/// A place in a file, of 63 bits.
pub(crate) struct Offset;

/// Four bytes that say nothing.
pub(crate) struct Zero;

/// A name with a NUL behind it, in the kernel's form.
pub(crate) struct Name;

impl<'a> Field<'a> for Name {
    type Taken = &'a [u8];

    fn take(body: &mut Body<'a>) -> Result<&'a [u8], Errno> {
        let rest = body.rest();
        let end = rest.iter().position(|byte| *byte == 0).ok_or(Errno::INVAL)?;
        let (name, behind) = rest.split_at(end);
        *rest = &behind[1..];
        Ok(name)
    }
}

/// All bytes that are left.
pub(crate) struct Data;

impl<'a> Field<'a> for Data {
    type Taken = &'a [u8];

    fn take(body: &mut Body<'a>) -> Result<&'a [u8], Errno> {
        Ok(std::mem::take(body.rest()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_structure_is_followed_by_names_and_data_or_has_them_apart() {
        let fixed = [7_u32, 9].map(u32::to_ne_bytes).concat();
        let rest = b"name\0other\0data";
        let whole = [&fixed[..], rest].concat();
        for mut body in [Body::whole(&whole), Body::split(&fixed, rest)] {
            assert_eq!((u32::take(&mut body), i32::take(&mut body)), (Ok(7), Ok(9)));
            assert_eq!(Name::take(&mut body), Ok(&b"name"[..]));
            assert_eq!(Name::take(&mut body), Ok(&b"other"[..]));
            assert_eq!(Data::take(&mut body), Ok(&b"data"[..]));
            assert_eq!(Data::take(&mut body), Ok(&b""[..]));
        }
    }

    #[test]
    fn what_is_missing_or_too_large_is_an_error() {
        assert_eq!(u64::take(&mut Body::whole(&[0; 7])), Err(Errno::INVAL));
        assert_eq!(Name::take(&mut Body::whole(b"name")), Err(Errno::INVAL));
        assert_eq!(Name::take(&mut Body::split(b"name\0", b"")), Err(Errno::INVAL));
        assert_eq!(Offset::take(&mut Body::whole(&[0xff; 8])), Err(Errno::INVAL));
        assert_eq!(Node::take(&mut Body::whole(&[0xff; 8])), Err(Errno::STALE));
        assert!(Header::parse(&[0; 39]).is_none());
    }

    #[test]
    fn a_header_has_the_layout_of_linux() {
        let mut bytes = [56_u32, 1].map(u32::to_ne_bytes).concat();
        bytes.extend([70_u64, 12].map(u64::to_ne_bytes).concat());
        bytes.extend([1000_u32, 100, 4321, 0].map(u32::to_ne_bytes).concat());
        let header = Header::parse(&bytes).unwrap();
        assert_eq!((header.opcode, header.unique, header.node), (1, 70, 12));
        assert_eq!(header.caller, Caller { thread: 4321, uid: 1000, gid: 100 });
    }
}
