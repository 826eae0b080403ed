//! Names of directories that fold case, as Linux's `utf8-12.1` compares them: full case folding,
//! canonical decomposition, no ignorable characters.
//!
//! ```text
//!   name --> each character mapped, Hangul taken apart --> combining characters in order
//! ```
//!
//! A name with a character that Unicode 12.1 does not have, or that is no UTF-8, is not folded. The
//! table is made by `scripts/casefold.py` from data of Unicode, Inc. under its license
//! (<https://www.unicode.org/license.txt>). Linux: fs/unicode/. Tested here, and against debugfs in
//! `tests/it/images.rs`.

use std::sync::OnceLock;

use crate::packed::deflate::inflate;

static TABLE: &[u8] = include_bytes!("casefold.bin");
/// Bytes of the table; it is deflated.
const TABLE_BYTES: usize = 18_570;

/// First syllable of Hangul, and how many there are.
const HANGUL: (u32, u32) = (0xac00, 11172);
const HANGUL_PARTS: [u32; 3] = [0x1100, 0x1161, 0x11a7];
const HANGUL_COUNTS: (u32, u32) = (588, 28);

/// In place of a character that is ignored; it is none, and has class 0.
const IGNORED: u32 = u32::MAX;

/// Folding of names.
#[derive(Debug)]
pub struct Casefold {
    /// First character behind a change between assigned and not; even places begin a run.
    assigned: Vec<u32>,
    /// First character, one past the last, and combining class.
    classes: Vec<(u32, u32, u8)>,
    /// Character, and where its mapping begins in `parts`; it ends where the next one begins.
    mapped: Vec<(u32, u32)>,
    parts: Vec<u32>,
}

struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    /// The next number; 0 behind the end.
    fn next(&mut self) -> u32 {
        let (mut value, mut shift) = (0, 0);
        while let Some((byte, rest)) = self.0.split_first() {
            self.0 = rest;
            value |= u32::from(byte & 0x7f) << shift;
            shift += 7;
            if *byte < 0x80 || shift > 21 {
                break;
            }
        }
        value
    }
}

impl Casefold {
    /// The folding of encoding 1, the only one that there is.
    #[must_use]
    pub fn utf8_12_1() -> &'static Self {
        static SHARED: OnceLock<Casefold> = OnceLock::new();
        SHARED.get_or_init(|| Self::decode(&inflate(TABLE, TABLE_BYTES).unwrap_or_default()))
    }

    fn decode(table: &[u8]) -> Self {
        let mut numbers = Numbers(table);
        let (mut assigned, mut end) = (Vec::new(), 0);
        for _ in 0..numbers.next() {
            let first = end + numbers.next();
            end = first + numbers.next();
            assigned.extend([first, end]);
        }
        let (mut classes, mut end) = (Vec::new(), 0);
        for _ in 0..numbers.next() {
            let first = end + numbers.next();
            end = first + numbers.next();
            classes.push((first, end, numbers.next() as u8));
        }
        let (mut mapped, mut parts, mut last) = (Vec::new(), Vec::new(), 0u32);
        for _ in 0..numbers.next() {
            last += numbers.next();
            mapped.push((last, parts.len() as u32));
            let mut before = last;
            for _ in 0..numbers.next() {
                let step = numbers.next();
                let step = (step >> 1) as i32 ^ -((step & 1) as i32);
                before = before.wrapping_add_signed(step);
                parts.push(before);
            }
        }
        Self { assigned, classes, mapped, parts }
    }

    /// The name as it is compared and hashed. `None`: it is not valid, and is compared as it is.
    #[must_use]
    pub fn fold(&self, name: &[u8]) -> Option<Vec<u8>> {
        let text = std::str::from_utf8(name).ok()?;
        if text.is_ascii() {
            return Some(text.to_ascii_lowercase().into_bytes());
        }
        let mut chars: Vec<(u32, u8)> = Vec::with_capacity(text.len());
        for char in text.chars().map(u32::from) {
            if self.assigned.partition_point(|edge| *edge <= char) % 2 == 0 {
                return None;
            }
            self.push(char, &mut chars);
        }
        // Each run of combining characters, in a stable order of their classes.
        for run in chars.chunk_by_mut(|a, b| (a.1 == 0) == (b.1 == 0)) {
            if run.first().is_some_and(|first| first.1 != 0) {
                run.sort_by_key(|char| char.1);
            }
        }
        let chars = chars.into_iter().filter_map(|(char, _)| char::from_u32(char));
        Some(chars.collect::<String>().into_bytes())
    }

    fn push(&self, char: u32, to: &mut Vec<(u32, u8)>) {
        let mut put = |char: u32| to.push((char, self.class(char)));
        if let Some(syllable) = char.checked_sub(HANGUL.0).filter(|nth| *nth < HANGUL.1) {
            let (per_lead, per_vowel) = HANGUL_COUNTS;
            put(HANGUL_PARTS[0] + syllable / per_lead);
            put(HANGUL_PARTS[1] + syllable % per_lead / per_vowel);
            if syllable % per_vowel != 0 {
                put(HANGUL_PARTS[2] + syllable % per_vowel);
            }
            return;
        }
        match self.mapped.binary_search_by_key(&char, |mapping| mapping.0) {
            Ok(at) => {
                let bound = |at: usize| self.mapped.get(at).map(|mapping| mapping.1 as usize);
                let (from, to) =
                    (bound(at).unwrap_or(0), bound(at + 1).unwrap_or(self.parts.len()));
                let parts = self.parts.get(from..to).unwrap_or(&[]);
                // Marks do not change places over what is ignored.
                if parts.is_empty() {
                    put(IGNORED);
                }
                parts.iter().for_each(|part| put(*part));
            }
            Err(_) => put(char),
        }
    }

    /// Canonical combining class.
    fn class(&self, char: u32) -> u8 {
        let at = self.classes.partition_point(|class| class.1 <= char);
        self.classes.get(at).filter(|class| class.0 <= char).map_or(0, |class| class.2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_whole() {
        let all = Casefold::utf8_12_1();
        assert!(all.assigned.is_sorted() && all.mapped.is_sorted() && all.classes.is_sorted());
        assert!(all.assigned.len() > 1000 && all.mapped.len() > 3000 && all.classes.len() > 300);
        assert!(all.parts.iter().all(|part| char::from_u32(*part).is_some()));
        // No mapping has a character that is mapped itself.
        for part in &all.parts {
            assert!(
                all.mapped.binary_search_by_key(part, |mapping| mapping.0).is_err(),
                "{part:x}"
            );
        }
    }

    #[test]
    fn names_fold() {
        let fold = |name: &str| Casefold::utf8_12_1().fold(name.as_bytes());
        let same = |a: &str, b: &str| assert_eq!(fold(a), fold(b), "{a} {b}");
        same("README.txt", "readme.TXT");
        same("STRASSE", "straße");
        same("\u{c5}ngstr\u{f6}m", "a\u{30a}NGSTRO\u{308}M");
        same("\u{212b}", "\u{e5}");
        same("a\u{301}\u{323}", "A\u{323}\u{301}");
        same("\u{d55c}", "\u{1112}\u{1161}\u{11ab}");
        same("a\u{ad}b\u{200d}", "AB");
        same("\u{1e9e}", "ss");
        same("\u{1c5}", "\u{1c4}");
        assert_ne!(fold("a\u{301}\u{301}"), fold("a\u{301}"));
        assert_ne!(fold("i"), fold("\u{131}"));
        assert_eq!(fold("\u{ad}"), Some(Vec::new()));
        assert_eq!(fold("\u{1fae0}"), None, "of Unicode 14");
        assert_eq!(Casefold::utf8_12_1().fold(b"a\xff"), None);
        assert_eq!(Casefold::utf8_12_1().fold(b"\xed\xa0\x80"), None);
    }
}
