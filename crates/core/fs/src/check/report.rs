//! Results of a check.

use std::fmt;

use super::kinds::Kind;

/// Findings that a report keeps.
pub const FINDINGS_MAX: usize = 1000;

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// Stable name of the rule, in words with dashes.
    pub name: &'static str,
    /// False for a notice, which does not change the verdict (nor that of `e2fsck -fn`).
    pub is_error: bool,
    /// Inode number, where one is involved.
    pub inode: Option<u32>,
    /// Block number, where one is involved.
    pub block: Option<u64>,
    /// Block group, where one is involved.
    pub group: Option<u32>,
    /// Description of the error.
    pub what: String,
    /// What a repair does about it.
    pub repair: &'static str,
    /// Number that is right, where a repair writes one.
    pub(super) right: Option<u64>,
}

impl Finding {
    /// True if a repair of it loses nothing and needs no decision.
    #[must_use]
    pub fn is_safe(&self) -> bool {
        super::kinds::SAFE.iter().any(|kind| kind.name == self.name)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sep = "";
        if let Some(ino) = self.inode {
            write!(f, "inode {ino}")?;
            sep = ", ";
        }
        if let Some(group) = self.group {
            write!(f, "{sep}group {group}")?;
            sep = ", ";
        }
        if let Some(block) = self.block {
            write!(f, "{sep}block {block}")?;
            sep = ", ";
        }
        if !sep.is_empty() {
            f.write_str(": ")?;
        }
        f.write_str(&self.what)
    }
}

/// Place of a finding.
#[derive(Clone, Copy, Default)]
pub(super) struct At {
    inode: Option<u32>,
    block: Option<u64>,
    group: Option<u32>,
    right: Option<u64>,
}

impl At {
    pub(super) const NOWHERE: Self = Self { inode: None, block: None, group: None, right: None };

    pub(super) fn ino(ino: u32) -> Self {
        Self { inode: Some(ino), ..Self::NOWHERE }
    }

    pub(super) fn block(block: u64) -> Self {
        Self { block: Some(block), ..Self::NOWHERE }
    }

    pub(super) fn group(group: u32) -> Self {
        Self { group: Some(group), ..Self::NOWHERE }
    }

    /// With the number that is right.
    pub(super) fn right(self, right: u64) -> Self {
        Self { right: Some(right), ..self }
    }

    pub(super) fn in_block(self, block: u64) -> Self {
        Self { block: Some(block), ..self }
    }
}

/// Progress of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckProgress {
    /// Current pass: `groups`, `inodes`, `directories`, `links`, `bitmaps`, `hashes`.
    pub stage: &'static str,
    /// Steps of the stage that are done.
    pub done: u64,
    /// Steps of the stage.
    pub total: u64,
}

/// Results of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// Broken rules, in the order they were met, at most [`FINDINGS_MAX`].
    pub findings: Vec<Finding>,
    /// Findings that were not kept.
    pub more: u64,
    /// Findings that are no notices, kept or not.
    pub errors: u64,
    /// True if the check was stopped before its end.
    pub stopped: bool,
    /// True if the log was not replayed: findings may be changes that wait in it.
    pub unreplayed: bool,
    /// Inodes in use that are not directories.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Blocks that something uses.
    pub blocks_used: u64,
    /// Inodes on the orphan list or in the orphan file, to be finished at the next mount.
    pub orphans: u64,
    /// Findings that are kept beyond [`FINDINGS_MAX`], for a repair.
    pub(super) spare: usize,
}

impl CheckReport {
    /// True if the check reached its end and found nothing but notices.
    pub fn is_clean(&self) -> bool {
        self.errors == 0 && !self.stopped
    }

    /// Notices that were kept.
    pub(crate) fn notices(&self) -> usize {
        self.findings.iter().filter(|finding| !finding.is_error).count()
    }

    /// Leaves out findings beyond [`FINDINGS_MAX`].
    pub(crate) fn cut(&mut self) {
        let kept = self.findings.len().min(FINDINGS_MAX);
        self.more += (self.findings.len() - kept) as u64;
        self.findings.truncate(kept);
        self.spare = 0;
    }

    pub(super) fn note(&mut self, kind: Kind, at: At, what: String) {
        self.errors += u64::from(kind.is_error);
        if self.findings.len() >= FINDINGS_MAX + self.spare {
            self.more += 1;
            return;
        }
        let At { inode, block, group, right } = at;
        let Kind { name, repair, is_error } = kind;
        self.findings.push(Finding { name, is_error, inode, block, group, what, repair, right });
    }
}
