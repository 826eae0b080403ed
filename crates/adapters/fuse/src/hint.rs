//! Hint at mount time that the user who mounts cannot write to the root directory, as with an image
//! that mke2fs made with its defaults: its root belongs to user 0.

use rustix::process::{getegid, geteuid, getgroups};
use syncline_fs::{Attr, Volume};

use crate::options::FuseOptions;

/// The user who mounts.
pub struct Mounter {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

impl Mounter {
    /// The user of this process.
    pub fn now() -> Mounter {
        let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
        let groups = getgroups().unwrap_or_default().into_iter().map(|group| group.as_raw());
        Mounter { uid, gid, groups: groups.chain([gid]).collect() }
    }
}

/// A line for a user who cannot make files in the root of the volume; `None` if the user can, asked
/// for an owner, or mounts to read.
pub fn write_hint(volume: &Volume, options: &FuseOptions, mounter: &Mounter) -> Option<String> {
    if volume.is_read_only() || options.uid.is_some() || options.gid.is_some() {
        return None;
    }
    let root = volume.getattr(&volume.root().ok()?);
    let Mounter { uid, gid, groups } = mounter;
    (!may_write(&root, *uid, groups)).then(|| {
        format!(
            "you cannot write to the root directory, which belongs to user {}; mount with \
             -o uid={uid},gid={gid}, or make the image with \
             syncline mkfs -E root_owner={uid}:{gid}",
            root.uid
        )
    })
}

/// Reports whether permissions of a directory allow this user to make files in it.
fn may_write(dir: &Attr, uid: u32, groups: &[u32]) -> bool {
    let bits = if dir.uid == uid {
        0o300
    } else if groups.contains(&dir.gid) {
        0o030
    } else {
        0o003
    };
    uid == 0 || dir.mode & bits == bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_of_the_user_decides() {
        let dir = |mode, uid, gid| Attr { mode, uid, gid, ..crate::convert::NOTHING };
        let may = |dir: Attr| may_write(&dir, 1000, &[1000, 7]);
        assert!(!may(dir(0o40_755, 0, 0)), "the default of mke2fs");
        assert!(may(dir(0o40_755, 1000, 0)) && may(dir(0o40_775, 0, 7)));
        assert!(may(dir(0o41_777, 0, 0)));
        assert!(!may(dir(0o40_577, 1000, 7)), "the owner's bits, not the others'");
        assert!(!may(dir(0o40_757, 0, 7)), "the group's bits, not the others'");
        assert!(may_write(&dir(0o40_000, 5, 5), 0, &[0]));
    }
}
