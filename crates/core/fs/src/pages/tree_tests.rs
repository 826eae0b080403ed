//! Tests of [`super::PageTree`].

use super::*;

fn pick(from: u64, to: u64, max: usize) -> Pick {
    Pick { from, to, max, run_max: 0, gap_max: 0, unlogged: false }
}

fn cache() -> PageCache {
    let options = crate::options::MountOptions::default();
    PageCache::new(&options, 4096)
}

fn page(byte: u8) -> Arc<[u8]> {
    vec![byte; 4096].into()
}

#[test]
fn masks_cover_exactly_the_range() {
    assert_eq!(mask(0, 0, 64), u64::MAX);
    assert_eq!(mask(0, 3, 5), 0b11000);
    assert_eq!(mask(1, 3, 66), 0b11);
    assert_eq!(mask(1, 128, 200), 0);
    assert_eq!(bits(0b1010_0001).collect::<Vec<_>>(), [0, 5, 7]);
}

#[test]
fn what_a_sync_finds_is_counted_by_pages_and_runs() {
    let (cache, mut tree) = (cache(), PageTree::new(12));
    // 1; 62 to 65 over the end of a chunk; 127; 192, whose chunk has a gap of one chunk before it.
    for lblk in [1, 62, 63, 64, 65, 127, 192] {
        tree.insert_dirty(&cache, lblk, page(1), lblk < 64);
    }
    let all = SyncDirty { pages: 7, fresh: 3, runs: 4 };
    assert_eq!(tree.sync_dirty_in(0, u64::MAX), all);
    let cut = SyncDirty { pages: 3, fresh: 1, runs: 2 };
    assert_eq!(tree.sync_dirty_in(63, 65), SyncDirty { pages: 2, fresh: 1, runs: 1 });
    assert_eq!(tree.sync_dirty_in(63, 127), SyncDirty { runs: 1, ..cut });
    assert_eq!(tree.sync_dirty_in(128, 192), SyncDirty::default());
}

#[test]
fn a_reader_keeps_what_it_saw() {
    let (cache, mut tree) = (cache(), PageTree::new(12));
    tree.insert_clean(&cache, 70, page(1));
    let seen = tree.read(&cache, 70).unwrap();
    assert!(tree.overwrite(&cache, 70, 10, &[9; 4]));
    assert_eq!(seen[10], 1);
    let now = tree.read(&cache, 70).unwrap();
    assert_eq!((now[9], now[10], now[13], now[14]), (1, 9, 9, 1));
    assert!(!tree.overwrite(&cache, 71, 0, &[0]));
    assert_eq!((tree.dirty(), cache.dirty_pages()), (1, 1));
}

#[test]
fn a_page_written_during_write_back_is_dirty_again() {
    let (cache, mut tree) = (cache(), PageTree::new(12));
    tree.insert_dirty(&cache, 5, page(1), true);
    tree.insert_dirty(&cache, 200, page(2), false);
    let out = tree.collect(&cache, &pick(0, u64::MAX, 100));
    assert_eq!(
        out.iter().map(|o| (o.lblk, o.delalloc)).collect::<Vec<_>>(),
        [(5, true), (200, false)]
    );
    assert!(tree.collect(&cache, &pick(0, u64::MAX, 100)).is_empty());
    tree.overwrite(&cache, 5, 0, &[7]);
    assert_eq!(out[0].data[0], 1, "stable while it is sent");
    assert!(tree.collect(&cache, &pick(0, u64::MAX, 100)).is_empty(), "one version at a time");
    tree.end_writeback(&cache, 5, WriteEnd::Written, Changes::UNKNOWN);
    tree.end_writeback(&cache, 200, WriteEnd::Written, Changes::UNKNOWN);
    assert_eq!((tree.dirty(), tree.delalloc(), cache.dirty_pages()), (1, 0, 1));
    assert_eq!(tree.next_dirty(0), Some(5));
    assert_eq!(tree.next_dirty(6), None);
}

#[test]
fn a_failed_write_back_leaves_pages_dirty_and_reserved() {
    let (cache, mut tree) = (cache(), PageTree::new(12));
    tree.insert_dirty(&cache, 5, page(1), true);
    let out = tree.collect(&cache, &pick(0, u64::MAX, 100));
    tree.end_writeback(&cache, out[0].lblk, WriteEnd::Failed, Changes::UNKNOWN);
    assert_eq!((tree.dirty(), tree.delalloc(), cache.dirty_pages()), (1, 1, 1));
    assert_eq!(tree.collect(&cache, &pick(0, u64::MAX, 100)).len(), 1);
}

#[test]
fn collecting_respects_range_and_limit() {
    let (cache, mut tree) = (cache(), PageTree::new(12));
    for lblk in 0..40 {
        tree.insert_dirty(&cache, lblk * 4, page(0), true);
    }
    let blocks = |out: Vec<Outgoing>| out.iter().map(|o| o.lblk).collect::<Vec<_>>();
    assert_eq!(blocks(tree.collect(&cache, &pick(60, 72, 100))), [60, 64, 68]);
    assert_eq!(blocks(tree.collect(&cache, &pick(0, 200, 2))), [0, 4]);
}

#[test]
fn only_clean_idle_pages_are_evicted() {
    let (cache, mut tree) = (cache(), PageTree::new(12));
    tree.insert_clean(&cache, 1, page(0));
    let frame = tree.slot(1).unwrap().1.frame;
    assert!(!tree.evict(&cache, 1, FrameId(frame.0 + 1)));
    tree.overwrite(&cache, 1, 0, &[1]);
    assert!(!tree.evict(&cache, 1, frame));
    tree.collect(&cache, &pick(0, 9, 9));
    assert!(!tree.evict(&cache, 1, frame));
    tree.end_writeback(&cache, 1, WriteEnd::Written, Changes::UNKNOWN);
    assert!(tree.evict(&cache, 1, frame));
    assert_eq!((tree.len(), cache.frames.len()), (0, 0));
}

#[test]
fn removing_a_range_returns_its_reservations() {
    let (cache, mut tree) = (cache(), PageTree::new(12));
    for lblk in 60..70 {
        tree.insert_dirty(&cache, lblk, page(0), lblk % 2 == 0);
    }
    assert_eq!(tree.remove_range(&cache, 62, 67), 3);
    assert_eq!((tree.len(), tree.dirty(), tree.delalloc()), (5, 5, 2));
    assert_eq!(tree.remove_range(&cache, 0, u64::MAX), 2);
    assert_eq!((tree.len(), cache.dirty_pages(), cache.frames.len()), (0, 0, 0));
    assert!(tree.chunks.is_empty());
}

#[test]
fn zeroing_dirties_only_what_it_changes() {
    let (cache, mut tree) = (cache(), PageTree::new(12));
    tree.insert_clean(&cache, 0, page(0));
    tree.insert_clean(&cache, 1, page(3));
    assert!(tree.zero(&cache, 0, 100, 4096));
    assert!(tree.zero(&cache, 1, 100, 4096));
    assert!(!tree.zero(&cache, 2, 100, 4096));
    assert_eq!(tree.dirty(), 1);
    let data = tree.peek(1).unwrap();
    assert_eq!((data[99], data[100], data[4095]), (3, 0, 0));
}
