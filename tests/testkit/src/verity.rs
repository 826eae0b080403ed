//! Files with fs-verity, made without a kernel that has it: data, tree and descriptor as Linux's
//! documentation says (Documentation/filesystems/fsverity.rst), put into an image by debugfs.

use std::path::Path;

use sha2::{Digest, Sha256, Sha512};

use crate::image::{TempImage, debugfs};

/// Parameters of a seal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seal {
    /// SHA-512 in place of SHA-256.
    pub sha512: bool,
    /// Bytes of a hash block.
    pub block_bytes: usize,
    /// At most 32 bytes.
    pub salt: Vec<u8>,
}

impl Seal {
    /// SHA-256 over blocks of 4 KiB, without a salt.
    #[must_use]
    pub fn usual() -> Self {
        Self { sha512: false, block_bytes: 4096, salt: Vec::new() }
    }

    fn hash(&self, block: &[u8]) -> Vec<u8> {
        let mut input = self.salt.clone();
        if !input.is_empty() {
            input.resize(if self.sha512 { 128 } else { 64 }, 0);
        }
        input.extend_from_slice(block);
        input.resize(input.len() + self.block_bytes - block.len(), 0);
        if self.sha512 { Sha512::digest(&input).to_vec() } else { Sha256::digest(&input).to_vec() }
    }

    /// The tree, root block first, and the root hash.
    fn tree(&self, data: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let hashes = |level: &[u8]| -> Vec<Vec<u8>> {
            level.chunks(self.block_bytes).map(|block| self.hash(block)).collect()
        };
        let (mut tree, mut level) = (Vec::new(), hashes(data));
        while level.len() > 1 {
            let per_block = self.block_bytes / level[0].len();
            let mut bytes = Vec::new();
            for block in level.chunks(per_block) {
                bytes.extend(block.concat());
                bytes.resize(bytes.len().next_multiple_of(self.block_bytes), 0);
            }
            level = hashes(&bytes);
            bytes.extend(tree);
            tree = bytes;
        }
        (tree, level.pop().unwrap_or_default())
    }

    /// What such a file has in its blocks of `fs_block` bytes.
    #[must_use]
    pub fn apply(&self, data: &[u8], fs_block: usize) -> Vec<u8> {
        let (tree, root) = self.tree(data);
        let mut file = data.to_vec();
        file.resize(file.len().next_multiple_of(65_536), 0);
        file.extend(tree);
        file.resize(file.len().next_multiple_of(fs_block), 0);
        let mut descriptor = vec![0; 256];
        descriptor[0] = 1;
        descriptor[1] = 1 + u8::from(self.sha512);
        descriptor[2] = self.block_bytes.trailing_zeros() as u8;
        descriptor[3] = self.salt.len() as u8;
        descriptor[8..16].copy_from_slice(&(data.len() as u64).to_le_bytes());
        descriptor[16..16 + root.len()].copy_from_slice(&root);
        descriptor[0x50..0x50 + self.salt.len()].copy_from_slice(&self.salt);
        file.extend(&descriptor);
        file.resize((file.len() + 4).next_multiple_of(fs_block) - 4, 0);
        file.extend((descriptor.len() as u32).to_le_bytes());
        file
    }

    /// Puts such a file into the root directory of an image with extents.
    ///
    /// # Panics
    /// If debugfs cannot.
    pub fn add(&self, image: &Path, name: &str, data: &[u8], fs_block: usize) {
        let source = TempImage::zeroed(0);
        let bytes = self.apply(data, fs_block);
        std::fs::write(source.path(), &bytes).expect("the scratch directory has room");
        let source = source.path().display();
        let size = data.len();
        let _ = debugfs(
            image,
            &format!("write {source} {name}\nsif {name} size {size}\nsif {name} flags 0x180000\n"),
        );
    }
}
