//! JSON, written.

use std::fmt::Write;

/// A text of JSON under way.
#[derive(Default)]
pub(crate) struct Json(pub(crate) String);

impl Json {
    /// `{ ... }`.
    pub(crate) fn object(fill: impl FnOnce(&mut Json)) -> Json {
        let mut json = Json::default();
        json.braced(fill);
        json
    }

    fn braced(&mut self, fill: impl FnOnce(&mut Json)) {
        self.0.push('{');
        fill(self);
        self.0.push('}');
    }

    /// A comma where one is needed.
    fn next(&mut self) {
        if !self.0.ends_with(['{', '[', ':']) && !self.0.is_empty() {
            self.0.push(',');
        }
    }

    fn key(&mut self, key: &str) {
        self.next();
        self.0.push('"');
        self.0.push_str(key);
        self.0.push_str("\":");
    }

    pub(crate) fn number(&mut self, key: &str, number: impl std::fmt::Display) {
        self.key(key);
        // Writing to a string cannot fail.
        let _ = write!(self.0, "{number}");
    }

    /// As [`Json::number`]; nothing where there is none.
    pub(crate) fn some_number(&mut self, key: &str, number: Option<impl std::fmt::Display>) {
        if let Some(number) = number {
            self.number(key, number);
        }
    }

    pub(crate) fn flag(&mut self, key: &str, is: bool) {
        self.number(key, is);
    }

    pub(crate) fn text(&mut self, key: &str, text: &str) {
        self.bytes(key, text.as_bytes());
    }

    /// A name: bytes that need not be UTF-8.
    pub(crate) fn bytes(&mut self, key: &str, bytes: &[u8]) {
        self.key(key);
        self.string(bytes);
    }

    /// A number in a list.
    pub(crate) fn element(&mut self, number: u64) {
        self.next();
        // Writing to a string cannot fail.
        let _ = write!(self.0, "{number}");
    }

    /// A text in a list.
    pub(crate) fn item(&mut self, bytes: &[u8]) {
        self.next();
        self.string(bytes);
    }

    /// A list, whose elements `fill` adds.
    pub(crate) fn list(&mut self, key: &str, fill: impl FnOnce(&mut Json)) {
        self.key(key);
        self.0.push('[');
        fill(self);
        self.0.push(']');
    }

    /// An object: a member with a key, an element of a list without.
    pub(crate) fn member(&mut self, key: Option<&str>, fill: impl FnOnce(&mut Json)) {
        match key {
            Some(key) => self.key(key),
            None => self.next(),
        }
        self.braced(fill);
    }

    /// The members of another object.
    pub(crate) fn joined(&mut self, members: &Json) {
        self.next();
        self.0.push_str(&members.0);
    }

    fn string(&mut self, bytes: &[u8]) {
        self.0.push('"');
        for chunk in bytes.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '"' | '\\' => self.0.extend(['\\', c]),
                    // JavaScript's JSON takes all others as they are.
                    c if c < ' ' => self.escape(c as u32),
                    c => self.0.push(c),
                }
            }
            for byte in chunk.invalid() {
                self.escape(0xDC00 | u32::from(*byte));
            }
        }
        self.0.push('"');
    }

    fn escape(&mut self, unit: u32) {
        // Writing to a string cannot fail.
        let _ = write!(self.0, "\\u{unit:04x}");
    }
}
