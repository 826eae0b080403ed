//! Deflated payloads: raw deflate streams whose inflated length is known beforehand.

use miniz_oxide::deflate::core::{
    CompressorOxide, TDEFLFlush, TDEFLStatus, compress, create_comp_flags_from_zip_params,
};
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

/// Compression level: the fastest. A record is compressed while a caller waits for it.
const LEVEL: i32 = 1;
/// Bytes of each [`SAMPLE_EVERY`] that are looked at to find out whether compression may pay.
const SAMPLE: usize = 64;
const SAMPLE_EVERY: usize = 256;
/// Shortest payload that is worth the attempt, in bytes.
const LEN_MIN: usize = 256;

/// `bytes` deflated, if that makes them shorter and a length of 16 bits holds it.
pub(super) fn deflate(bytes: &[u8]) -> Option<Vec<u8>> {
    if bytes.len() < LEN_MIN || is_noise(bytes) {
        return None;
    }
    let flags = create_comp_flags_from_zip_params(LEVEL, 0, 0);
    let mut compressor = CompressorOxide::new(flags);
    let mut out = vec![0; (bytes.len() - 1).min(usize::from(u16::MAX))];
    let (status, taken, made) = compress(&mut compressor, bytes, &mut out, TDEFLFlush::Finish);
    if status != TDEFLStatus::Done || taken != bytes.len() {
        return None;
    }
    out.truncate(made);
    Some(out)
}

/// The `len` bytes that `stream` inflates to. `None` if it gives any other number of bytes, or ends
/// before its last byte.
pub(crate) fn inflate(stream: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut out = vec![0; len];
    let mut decompressor = Box::new(DecompressorOxide::new());
    let flags = TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
    let (status, taken, made) = decompress(&mut decompressor, stream, &mut out, 0, flags);
    let is_exact = status == TINFLStatus::Done && taken == stream.len() && made == len;
    is_exact.then_some(out)
}

/// True if samples of `bytes` look as random bytes do: few of their values occur twice.
fn is_noise(bytes: &[u8]) -> bool {
    // Of 256 values each random byte leaves out all but one part in 256.
    let (mut seen, mut distinct, mut absent) = ([false; 256], 0, 256.0);
    for part in bytes.chunks(SAMPLE_EVERY) {
        for byte in part.iter().take(SAMPLE) {
            distinct += u32::from(!std::mem::replace(&mut seen[usize::from(*byte)], true));
            absent *= 255.0 / 256.0;
        }
    }
    f64::from(distinct) > (256.0 - absent) * 0.85
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_shrinks_and_comes_back_and_noise_is_left_alone() {
        let text = b"INSERT INTO t VALUES (1, 'a row of text');".repeat(40);
        let stream = deflate(&text).unwrap();
        assert!(stream.len() < text.len() / 4);
        assert_eq!(inflate(&stream, text.len()).unwrap(), text);
        let mut x = 1u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (x >> 56) as u8
        })
        .take(4096)
        .collect();
        assert!(deflate(&noise).is_none());
        assert!(deflate(&text[..100]).is_none(), "too short to pay");
    }

    #[test]
    fn a_stream_of_another_length_is_refused() {
        let text = vec![7; 4096];
        let stream = deflate(&text).unwrap();
        assert!(inflate(&stream, 4095).is_none() && inflate(&stream, 4097).is_none());
        let longer = [stream.as_slice(), &[0]].concat();
        assert!(inflate(&longer, 4096).is_none());
        assert!(inflate(&stream[..stream.len() - 1], 4096).is_none());
        assert!(inflate(&[], 0).is_none());
    }
}
