//! The answer to one request, without its header.

/// Bytes of an answer, in the memory that a transport sends.
pub(crate) struct Out<'a> {
    bytes: &'a mut [u8],
    len: usize,
}

impl<'a> Out<'a> {
    pub(crate) fn new(bytes: &'a mut [u8]) -> Out<'a> {
        Out { bytes, len: 0 }
    }

    /// Bytes so far.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// At most so many bytes are wanted.
    pub(crate) fn limit(&mut self, bytes: u32) {
        let most = self.bytes.len().min(bytes as usize);
        self.bytes = &mut std::mem::take(&mut self.bytes)[..most];
    }

    /// Room for so many bytes, as far as there is; [`Out::fill`] says how many it holds.
    pub(crate) fn room(&mut self, bytes: u32) -> &mut [u8] {
        let most = self.bytes.len().min(bytes as usize);
        &mut self.bytes[..most]
    }

    /// The first bytes of [`Out::room`] are the answer.
    pub(crate) fn fill(&mut self, bytes: usize) {
        self.len = bytes.min(self.bytes.len());
    }

    /// Adds the parts, if there is room for all of them.
    #[must_use]
    pub(crate) fn put(&mut self, parts: &[&[u8]]) -> bool {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        if self.bytes.len() - self.len < bytes {
            return false;
        }
        for part in parts {
            self.bytes[self.len..][..part.len()].copy_from_slice(part);
            self.len += part.len();
        }
        true
    }
}
