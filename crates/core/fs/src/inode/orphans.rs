//! Orphans in memory: members of the list, blocks of the orphan file.

/// In-core orphans of a volume.
#[derive(Default)]
pub(crate) struct Orphans {
    /// Members of the list, the head first.
    pub(crate) list: Vec<u32>,
    /// Physical blocks of the orphan file; empty without one.
    pub(crate) file: Vec<u64>,
    pub(crate) file_ino: u32,
    pub(crate) file_generation: u32,
}

impl Orphans {
    /// The inode that follows `ino` in the list, 0 at its end.
    pub(crate) fn next(&self, ino: u32) -> u32 {
        let at = self.list.iter().position(|member| *member == ino);
        at.and_then(|at| self.list.get(at + 1)).copied().unwrap_or(0)
    }

    /// Uses an orphan file with these blocks.
    pub(crate) fn set_file(&mut self, ino: u32, generation: u32, blocks: Vec<u64>) {
        (self.file_ino, self.file_generation, self.file) = (ino, generation, blocks);
    }

    /// Takes over the list found at mount, head first.
    pub(crate) fn set_list(&mut self, list: Vec<u32>) {
        self.list = list;
    }
}
