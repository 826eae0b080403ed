//! The next logged image of a shared block, composed from its logged image and the changes of the
//! sets that are committed.
//!
//! ```text
//!   logged image ---+
//!   newest contents |--> slots and bits copied from the newest, counters added,  -> next logged
//!   delta of a set -+    checksums renewed by the file system                        image
//! ```
//!
//! A pure function of [`Shared`], which holds immutable snapshots. It takes no lock, and the caller
//! holds none of the journal's while it runs, so the file system may take its own. A block that no
//! other set has changed needs no composition: its newest contents are the image. Debug builds
//! compose it as well and compare, which finds changes that no delta describes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Delta;
use crate::journal::Host;

/// A shared block of the sets that are committed.
pub(crate) struct Shared {
    pub(crate) block: u64,
    /// The image that recovery would give.
    pub(crate) logged: Arc<[u8]>,
    pub(crate) newest: Arc<[u8]>,
    pub(crate) delta: Delta,
    /// No other set has changed it.
    pub(crate) alone: bool,
}

/// The next logged image of each block. `None`: the changes cannot be told apart.
pub(crate) fn compose(
    shared: &[Shared],
    host: Option<&dyn Host>,
) -> Option<BTreeMap<u64, Arc<[u8]>>> {
    let mut images: BTreeMap<u64, Arc<[u8]>> = BTreeMap::new();
    // Group descriptors come last: they hold the checksums of bitmaps.
    let (groups, others): (Vec<_>, Vec<_>) =
        shared.iter().partition(|one| matches!(one.delta, Delta::Groups(_)));
    for one in others.into_iter().chain(groups) {
        let image = if one.alone {
            debug_assert!(
                apply(one, &images, host).is_none_or(|image| image[..] == one.newest[..]),
                "changes of block {} are lost",
                one.block
            );
            Arc::clone(&one.newest)
        } else {
            apply(one, &images, host)?.into()
        };
        images.insert(one.block, image);
    }
    Some(images)
}

/// The logged image with the changes of `one`.
fn apply(
    one: &Shared,
    images: &BTreeMap<u64, Arc<[u8]>>,
    host: Option<&dyn Host>,
) -> Option<Vec<u8>> {
    let mut image = one.logged.to_vec();
    one.delta.copy(&one.newest, &mut image);
    match &one.delta {
        Delta::Groups(groups) => {
            let bitmap = |block: u64| images.get(&block).cloned();
            host?.apply_counters(one.block, &mut image, groups, &bitmap)?;
        }
        Delta::Slots(_) => host?.renew_checksum(one.block, &mut image),
        Delta::Bits(_) => {}
    }
    Some(image)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Counters, JournalError};

    /// Adds the free blocks of a group to its byte, and a bitmap's first byte to the byte behind.
    struct Adder;

    impl Host for Adder {
        fn aborted(&self, _: &JournalError) {}

        fn apply_counters(
            &self,
            _: u64,
            image: &mut [u8],
            groups: &BTreeMap<u32, Counters>,
            bitmap: &dyn Fn(u64) -> Option<Arc<[u8]>>,
        ) -> Option<()> {
            for (group, counters) in groups {
                let byte = image.get_mut(*group as usize)?;
                *byte = byte.checked_add_signed(counters.free_blocks as i8)?;
            }
            if let Some(bitmap) = bitmap(5) {
                *image.last_mut()? = bitmap[0];
            }
            Some(())
        }
    }

    fn shared(block: u64, logged: [u8; 8], newest: [u8; 8], delta: Delta) -> Shared {
        let (logged, newest) = (Arc::from(&logged[..]), Arc::from(&newest[..]));
        Shared { block, logged, newest, delta, alone: false }
    }

    fn groups(free_blocks: i64) -> Delta {
        Delta::Groups([(1, Counters { free_blocks, ..Counters::default() })].into())
    }

    #[test]
    fn only_the_changes_of_the_sets_are_in_the_image() {
        let slots = shared(4, [0; 8], [7; 8], Delta::Slots([(2, 2)].into()));
        let bits = shared(5, [0; 8], [0xff; 8], Delta::Bits(vec![(4, 4)]));
        let counters = shared(1, [9; 8], [50; 8], groups(-2));
        // The descriptor is listed first and composed last.
        let images = compose(&[counters, slots, bits], Some(&Adder)).unwrap();
        assert_eq!(images[&4][..], [0, 0, 7, 7, 0, 0, 0, 0]);
        assert_eq!(images[&5][..], [0xf0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(images[&1][..], [9, 7, 9, 9, 9, 9, 9, 0xf0]);
    }

    #[test]
    fn counters_that_cannot_be_applied_or_have_nobody_to_apply_them_are_not_composed() {
        let far = || Delta::Groups([(9, Counters::default())].into());
        assert!(compose(&[shared(1, [0; 8], [0; 8], far())], Some(&Adder)).is_none());
        assert!(compose(&[shared(1, [0; 8], [0; 8], groups(1))], None).is_none());
    }

    #[test]
    fn a_block_that_nobody_else_changed_is_taken_as_it_is() {
        let mut alone = shared(4, [0; 8], [0, 3, 0, 0, 0, 0, 0, 0], Delta::Slots([(1, 1)].into()));
        alone.alone = true;
        let images = compose(std::slice::from_ref(&alone), Some(&Adder)).unwrap();
        assert!(Arc::ptr_eq(&images[&4], &alone.newest));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "changes of block 4 are lost")]
    fn a_change_that_no_delta_describes_is_found() {
        let mut alone = shared(4, [0; 8], [0, 3, 0, 9, 0, 0, 0, 0], Delta::Slots([(1, 1)].into()));
        alone.alone = true;
        compose(&[alone], Some(&Adder));
    }
}
