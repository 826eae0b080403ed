//! Sizes on a command line.

/// `2G`, `512M`, `64K` or bytes. A sign is refused: other programs take `+2G` for so much more.
pub fn size_bytes(text: &str) -> Result<u64, String> {
    let (number, shift) = match text.chars().last().map(|c| c.to_ascii_uppercase()) {
        Some('K') => (&text[..text.len() - 1], 10),
        Some('M') => (&text[..text.len() - 1], 20),
        Some('G') => (&text[..text.len() - 1], 30),
        Some('T') => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    let digits = Some(number).filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
    let bytes = digits
        .and_then(|number| number.parse::<u64>().ok())
        .and_then(|n| n.checked_mul(1 << shift));
    bytes.filter(|n| *n > 0).ok_or_else(|| "a size like 2G, 512M or 65536".to_owned())
}
