//! Encryption policies: an encrypted inode has one, and what is in an encrypted directory has its.

use syncline_ondisk::bytes::u8_at;
use syncline_ondisk::inode::Inode;
use syncline_ondisk::xattr::{self, Place};

use super::inodes::Slot;
use super::report::At;
use super::{Checker, Step, kinds};

/// `e_name_index` of the attribute `c` of encryption.
const INDEX_ENCRYPTION: u8 = 9;
/// Bytes of a context of version 1 and 2; the nonce is the last 16.
const CONTEXT_BYTES: [usize; 2] = [28, 40];
const NONCE_BYTES: usize = 16;
/// Policies that are told apart.
const POLICIES_MAX: usize = 1 << 16;

/// Policy of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// Of a version that is not known.
    Unknown,
    /// A number for each policy that was seen.
    Known(u32),
}

/// Policies of all encrypted inodes.
#[derive(Default)]
pub(super) struct Policies {
    seen: Vec<Vec<u8>>,
    /// First and last inode of each range with one policy, ascending.
    ranges: Vec<(u32, u32, Policy)>,
}

impl Policies {
    /// The policy of an inode; `None` if it is not encrypted.
    pub(super) fn of(&self, ino: u32) -> Option<Policy> {
        let after = self.ranges.partition_point(|(first, ..)| *first <= ino);
        let (_, last, policy) = self.ranges.get(after.checked_sub(1)?)?;
        (ino <= *last).then_some(*policy)
    }

    fn add(&mut self, ino: u32, policy: Policy) {
        match self.ranges.last_mut() {
            Some((_, last, known)) if *last + 1 == ino && *known == policy => *last = ino,
            _ => self.ranges.push((ino, ino, policy)),
        }
    }

    /// The number of the policy in a context.
    fn number(&mut self, policy: &[u8]) -> Policy {
        if let Some(at) = self.seen.iter().position(|seen| seen == policy) {
            return Policy::Known(at as u32);
        }
        if self.seen.len() >= POLICIES_MAX {
            return Policy::Unknown;
        }
        self.seen.push(policy.to_vec());
        Policy::Known(self.seen.len() as u32 - 1)
    }
}

impl Checker<'_> {
    /// Checks the context of an encrypted inode.
    pub(super) fn check_policy(&mut self, slot: &Slot<'_>) -> Step {
        let at = At::ino(slot.ino);
        let Some(context) = self.context(slot)? else {
            self.note(
                kinds::NOT_ENCRYPTED,
                at,
                "encrypted, and without the attribute that says how",
            );
            return Ok(());
        };
        let policy = match u8_at(&context, 0) {
            version @ (1 | 2) if context.len() == CONTEXT_BYTES[usize::from(version) - 1] => {
                self.policies.number(&context[..context.len() - NONCE_BYTES])
            }
            0..=2 => {
                self.note(kinds::ENCRYPTION, at, "the attribute of encryption is corrupt");
                return Ok(());
            }
            _ => Policy::Unknown,
        };
        self.policies.add(slot.ino, policy);
        Ok(())
    }

    /// The value of the attribute of encryption, in the inode or in its block.
    fn context(&mut self, slot: &Slot<'_>) -> Step<Option<Vec<u8>>> {
        let Inode { i_file_acl, .. } = slot.raw;
        let area = slot.raw.xattr_range(slot.bytes.len()).and_then(|range| slot.bytes.get(range));
        if let Some(area) = area {
            if let Ok(Some(value)) = xattr::get(area, Place::Inode, INDEX_ENCRYPTION, b"c") {
                return Ok(Some(value.to_vec()));
            }
        }
        if i_file_acl == 0 || !self.in_volume(i_file_acl) {
            return Ok(None);
        }
        let Some(block) = self.read(i_file_acl)? else { return Ok(None) };
        let value = xattr::get(&block, Place::Block, INDEX_ENCRYPTION, b"c");
        Ok(value.ok().flatten().map(<[u8]>::to_vec))
    }
}
