//! Little- and big-endian fields at byte offsets, total over every slice.
//!
//! A read past the end of the slice gives zero and a write past the end does nothing. That is what
//! the format itself says of short structures (a 32-byte group descriptor, a 128-byte inode), and
//! it means that no decoder can panic on a length it did not expect: length rules are checked by
//! the decoders where they matter. Tested through every structure that uses it.

macro_rules! accessors {
    ($get:ident, $put:ident, $int:ty, $from:ident, $to:ident, $doc:literal) => {
        #[doc = concat!("Reads the ", $doc, " at `off`; zero past the end.")]
        #[inline]
        #[must_use]
        pub fn $get(buf: &[u8], off: usize) -> $int {
            const N: usize = size_of::<$int>();
            match buf.get(off..).and_then(|rest| rest.first_chunk::<N>()) {
                Some(bytes) => <$int>::$from(*bytes),
                None => 0,
            }
        }

        #[doc = concat!("Writes the ", $doc, " at `off`; nothing past the end.")]
        #[inline]
        pub fn $put(buf: &mut [u8], off: usize, value: $int) {
            const N: usize = size_of::<$int>();
            if let Some(dst) = buf.get_mut(off..).and_then(|rest| rest.first_chunk_mut::<N>()) {
                *dst = value.$to();
            }
        }
    };
}

accessors!(le16, put_le16, u16, from_le_bytes, to_le_bytes, "little-endian u16");
accessors!(le32, put_le32, u32, from_le_bytes, to_le_bytes, "little-endian u32");
accessors!(le64, put_le64, u64, from_le_bytes, to_le_bytes, "little-endian u64");
accessors!(be16, put_be16, u16, from_be_bytes, to_be_bytes, "big-endian u16");
accessors!(be32, put_be32, u32, from_be_bytes, to_be_bytes, "big-endian u32");
accessors!(be64, put_be64, u64, from_be_bytes, to_be_bytes, "big-endian u64");

/// Reads the byte at `off`; zero past the end.
#[inline]
#[must_use]
pub fn u8_at(buf: &[u8], off: usize) -> u8 {
    buf.get(off).copied().unwrap_or(0)
}

/// Writes the byte at `off`; nothing past the end.
#[inline]
pub fn put_u8(buf: &mut [u8], off: usize, value: u8) {
    if let Some(dst) = buf.get_mut(off) {
        *dst = value;
    }
}

/// Copies `N` bytes from `off`; zeros where the slice ends before.
#[inline]
#[must_use]
pub fn array_at<const N: usize>(buf: &[u8], off: usize) -> [u8; N] {
    buf.get(off..).and_then(|rest| rest.first_chunk::<N>()).copied().unwrap_or([0; N])
}

/// Copies `src` to `off`; nothing if it does not fit.
#[inline]
pub fn put_bytes(buf: &mut [u8], off: usize, src: &[u8]) {
    let end = off.saturating_add(src.len());
    if let Some(dst) = buf.get_mut(off..end) {
        dst.copy_from_slice(src);
    }
}

/// `lo | hi << 32`.
#[inline]
#[must_use]
pub fn join32(lo: u32, hi: u32) -> u64 {
    u64::from(lo) | u64::from(hi) << 32
}

/// `lo | hi << 16`.
#[inline]
#[must_use]
pub fn join16(lo: u16, hi: u16) -> u32 {
    u32::from(lo) | u32::from(hi) << 16
}

/// The low 32 bits.
#[inline]
#[must_use]
pub fn lo32(value: u64) -> u32 {
    (value & 0xffff_ffff) as u32
}

/// The high 32 bits.
#[inline]
#[must_use]
pub fn hi32(value: u64) -> u32 {
    (value >> 32) as u32
}

/// The low 16 bits.
#[inline]
#[must_use]
pub fn lo16(value: u32) -> u16 {
    (value & 0xffff) as u16
}

/// The high 16 bits.
#[inline]
#[must_use]
pub fn hi16(value: u32) -> u16 {
    (value >> 16) as u16
}

/// A value that sits at one little-endian byte offset; the layout tables are made of these.
pub(crate) trait Field: Sized {
    fn get(buf: &[u8], off: usize) -> Self;
    fn put(&self, buf: &mut [u8], off: usize);
}

macro_rules! int_field {
    ($int:ty, $get:ident, $put:ident) => {
        impl Field for $int {
            #[inline]
            fn get(buf: &[u8], off: usize) -> Self {
                $get(buf, off)
            }
            #[inline]
            fn put(&self, buf: &mut [u8], off: usize) {
                $put(buf, off, *self);
            }
        }
    };
}

int_field!(u8, u8_at, put_u8);
int_field!(u16, le16, put_le16);
int_field!(u32, le32, put_le32);
int_field!(u64, le64, put_le64);

impl<const N: usize> Field for [u8; N] {
    #[inline]
    fn get(buf: &[u8], off: usize) -> Self {
        array_at(buf, off)
    }
    #[inline]
    fn put(&self, buf: &mut [u8], off: usize) {
        put_bytes(buf, off, self);
    }
}

impl<const N: usize> Field for [u32; N] {
    #[inline]
    fn get(buf: &[u8], off: usize) -> Self {
        std::array::from_fn(|i| le32(buf, off + 4 * i))
    }
    #[inline]
    fn put(&self, buf: &mut [u8], off: usize) {
        for (i, value) in self.iter().enumerate() {
            put_le32(buf, off + 4 * i, *value);
        }
    }
}
/// True if all bytes are zero. A function of its own: crates that are built for size call it.
#[inline(never)]
#[must_use]
pub fn is_zero(bytes: &[u8]) -> bool {
    // In parts, which the compiler makes vectors of.
    bytes.chunks(64).all(|part| part.iter().fold(0, |all, byte| all | byte) == 0)
}
