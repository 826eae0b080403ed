//! Input taken apart: numbers from its front, zeros behind its end.

/// The rest of an input.
pub(crate) struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Bytes<'a> {
        Bytes(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Up to `len` bytes.
    pub(crate) fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// All that is left.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.0
    }

    pub(crate) fn u8(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from(self.u8()) | u16::from(self.u8()) << 8
    }

    /// A place or a length: most are small, some are at a border, a few are anything.
    pub(crate) fn size(&mut self) -> u64 {
        let (kind, low) = (self.u8(), u64::from(self.u16()));
        match kind % 8 {
            0..=3 => low,
            4 => low << 12,
            5 => (low << 12).saturating_sub(1),
            6 => low << 20,
            _ => u64::MAX >> (low % 64),
        }
    }
}
