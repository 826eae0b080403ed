//! Lookup of inodes against eviction, change and removal, under schedules that shuttle draws.
//!
//! [`Shard`] itself runs here, under shuttle's mutex; around it stand the steps of `inode/iget.rs`
//! and `inode/evict.rs`, with a switch of threads wherever those hold no lock of the shard.
//! Checked: a lookup gives the inode as the last change left it, an inode is in memory once, and
//! one that was freed does not come back.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use shuttle::sync::Mutex;
use shuttle::thread;
use syncline_ondisk::inode as disk;

use crate::incore::Inode;
use crate::inode::icache::Shard;

const SCHEDULES: usize = 2000;
const INO: u32 = 12;

/// A shard, and the slot of the inode table: links and number of the last change.
struct Volume {
    shard: Mutex<Shard>,
    slot: parking_lot::Mutex<(u16, u32)>,
    /// Canary: what was read enters although an inode has left since.
    forgets_removals: bool,
}

fn inode((links, change): (u16, u32)) -> Arc<Inode> {
    let mut raw = disk::Inode::decode(&[0; 256]).expect("an empty slot decodes");
    (raw.i_links_count, raw.i_generation) = (links, change);
    Arc::new(Inode::new(INO, raw, 0))
}

impl Volume {
    fn new(forgets_removals: bool) -> Volume {
        let slot = parking_lot::Mutex::new((1, 0));
        Volume { shard: Mutex::default(), slot, forgets_removals }
    }

    /// `iget`. `None`: the inode was freed.
    fn lookup(&self) -> Option<Arc<Inode>> {
        loop {
            let removals = {
                let shard = self.shard.lock().unwrap();
                match shard.get(INO) {
                    Ok(inode) => {
                        inode.refs.fetch_add(1, Ordering::AcqRel);
                        return Some(inode);
                    }
                    Err(removals) => removals,
                }
            };
            thread::yield_now();
            let read = *self.slot.lock();
            if read.0 == 0 {
                return None;
            }
            thread::yield_now();
            let mut shard = self.shard.lock().unwrap();
            let entered = match self.forgets_removals {
                true => Some(shard.insert(inode(read))),
                false => shard.insert_read(inode(read), removals),
            };
            if let Some(inode) = entered {
                inode.refs.fetch_add(1, Ordering::AcqRel);
                return Some(inode);
            }
        }
    }

    /// The last reference to an inode without links frees it.
    fn release(&self, inode: Arc<Inode>) {
        if inode.refs.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        thread::yield_now();
        if inode.state.read().raw.i_links_count != 0 {
            return;
        }
        let mut shard = self.shard.lock().unwrap();
        let is_cached = shard.get(INO).is_ok_and(|cached| Arc::ptr_eq(&cached, &inode));
        if is_cached && inode.refs() == 0 {
            shard.remove(INO);
        }
    }

    /// A change of the inode: in memory, then in its slot; `links` it has afterwards.
    fn change(&self, inode: &Inode, links: u16) {
        let mut state = inode.state.write();
        let mut slot = self.slot.lock();
        assert_eq!(state.raw.i_generation, slot.1, "an old inode is in memory");
        *slot = (links, slot.1 + 1);
        (state.raw.i_links_count, state.raw.i_generation) = *slot;
    }

    fn use_twice(&self) {
        for _ in 0..2 {
            let Some(inode) = self.lookup() else { return };
            if inode.state.read().raw.i_links_count > 0 {
                thread::yield_now();
                let links = inode.state.read().raw.i_links_count;
                self.change(&inode, links);
            }
            self.release(inode);
        }
    }

    fn unlink(&self) {
        if let Some(inode) = self.lookup() {
            thread::yield_now();
            self.change(&inode, 0);
            self.release(inode);
        }
        thread::yield_now();
        assert!(self.slot.lock().0 == 0, "it came back");
    }

    fn evict(&self) {
        for _ in 0..3 {
            drop(self.shard.lock().unwrap().make_room(0));
            thread::yield_now();
        }
    }
}

fn run(forgets_removals: bool, unlinks: bool) {
    let volume = shuttle::sync::Arc::new(Volume::new(forgets_removals));
    let mut threads = Vec::new();
    let mut spawn = |work: fn(&Volume)| {
        let volume = shuttle::sync::Arc::clone(&volume);
        threads.push(thread::spawn(move || work(&volume)));
    };
    spawn(Volume::use_twice);
    spawn(Volume::use_twice);
    spawn(Volume::evict);
    if unlinks {
        spawn(Volume::unlink);
    }
    for thread in threads {
        thread.join().unwrap();
    }
    let cached = volume.shard.lock().unwrap().get(INO);
    if let Ok(inode) = cached {
        assert_eq!(inode.state.read().raw.i_generation, volume.slot.lock().1);
        assert!(!unlinks || inode.refs() > 0, "a freed inode is in the cache");
    }
}

#[test]
fn lookups_see_the_newest_inode_beside_changes_and_eviction() {
    shuttle::check_random(|| run(false, false), SCHEDULES);
    shuttle::check_pct(|| run(false, false), SCHEDULES, 3);
}

#[test]
fn a_freed_inode_does_not_come_back() {
    shuttle::check_random(|| run(false, true), SCHEDULES);
}

#[test]
#[should_panic(expected = "an old inode is in memory")]
fn an_old_inode_that_enters_is_caught() {
    shuttle::check_random(|| run(true, false), SCHEDULES);
}
