//! States of a page under schedules that shuttle draws: a writer, a reader, eviction and two who
//! write back.
//!
//! [`PageTree`] itself runs here, under shuttle's mutex in the place of `Inode::pages`. Checked:
//! what write-back sends does not change under it, at most one version of a page is on its way, a
//! page that the device does not have is never evicted, and after the last pass the device has what
//! was written last.

use shuttle::sync::Mutex;
use shuttle::thread;

use super::PageCache;
use super::changes::Changes;
use super::tree::{PageTree, Pick, WriteEnd};

const SCHEDULES: usize = 1500;
const BLOCK: u64 = 5;
const WRITES: u8 = 3;

/// A file of one block: its page, and the block on the device.
struct File {
    cache: PageCache,
    pages: Mutex<PageTree>,
    /// First byte of the block, and how many requests for it are under way.
    device: Mutex<(u8, u32)>,
    /// Canary: a page is clean again whether or not its write succeeded.
    loses_failures: bool,
}

impl File {
    fn new(loses_failures: bool) -> File {
        let options = crate::options::MountOptions::default();
        let cache = PageCache::new(&options, 4096);
        let (pages, device) = (Mutex::new(PageTree::new(12)), Mutex::new((0, 0)));
        File { cache, pages, device, loses_failures }
    }

    /// The page is loaded if it is not cached; another thread may do so as well.
    fn load(&self) {
        if !self.pages.lock().unwrap().contains(BLOCK) {
            let mut tree = self.pages.lock().unwrap();
            // Read under the lock, as `insert_clean` keeps a page that came meanwhile.
            let read = self.device.lock().unwrap().0;
            tree.insert_clean(&self.cache, BLOCK, vec![read; 4096].into());
        }
    }

    fn write(&self) {
        for byte in 1..=WRITES {
            loop {
                self.load();
                if self.pages.lock().unwrap().overwrite(&self.cache, BLOCK, 0, &[byte; 4096]) {
                    break;
                }
            }
        }
    }

    /// Reads never go back in time.
    fn read(&self) {
        let mut last = 0;
        for _ in 0..3 {
            self.load();
            if let Some(page) = self.pages.lock().unwrap().read(&self.cache, BLOCK) {
                assert!(page[0] >= last, "an older page came back");
                last = page[0];
            }
        }
    }

    /// One pass of write-back; every second request fails if `fails`.
    fn write_back(&self, fails: bool) {
        let pick = Pick { from: 0, to: u64::MAX, max: 9, run_max: 0, gap_max: 0, unlogged: false };
        let out = self.pages.lock().unwrap().collect(&self.cache, &pick);
        for page in out {
            let sent = page.data[0];
            {
                let mut device = self.device.lock().unwrap();
                device.1 += 1;
                assert_eq!(device.1, 1, "two versions of a page are on their way");
            }
            thread::yield_now();
            assert!(page.data.iter().all(|byte| *byte == sent), "it changed while it was sent");
            {
                let mut device = self.device.lock().unwrap();
                if !fails {
                    device.0 = sent;
                }
                device.1 -= 1;
            }
            let written = !fails || self.loses_failures;
            let end = if written { WriteEnd::Written } else { WriteEnd::Failed };
            let mut tree = self.pages.lock().unwrap();
            tree.end_writeback(&self.cache, page.lblk, end, Changes::UNKNOWN);
        }
    }

    fn evict(&self) {
        for _ in 0..3 {
            let mut tree = self.pages.lock().unwrap();
            if let Some(frame) = tree.frame(BLOCK) {
                tree.evict(&self.cache, BLOCK, frame);
            }
        }
    }
}

fn run(loses_failures: bool) {
    let file = shuttle::sync::Arc::new(File::new(loses_failures));
    let mut threads = Vec::new();
    let mut spawn = |work: fn(&File)| {
        let file = shuttle::sync::Arc::clone(&file);
        threads.push(thread::spawn(move || work(&file)));
    };
    spawn(File::write);
    spawn(File::read);
    spawn(File::evict);
    spawn(|file| file.write_back(true));
    spawn(|file| {
        file.write_back(false);
        file.write_back(false);
    });
    for thread in threads {
        thread.join().unwrap();
    }
    file.write_back(false);
    assert_eq!(file.device.lock().unwrap().0, WRITES, "the last write is lost");
    let tree = file.pages.lock().unwrap();
    assert_eq!((tree.dirty(), tree.in_writeback(), file.cache.dirty_pages()), (0, false, 0));
}

#[test]
fn the_last_write_reaches_the_device() {
    shuttle::check_random(|| run(false), SCHEDULES);
    shuttle::check_pct(|| run(false), SCHEDULES, 3);
}

#[test]
#[should_panic]
fn a_failed_write_that_counts_as_done_is_caught() {
    shuttle::check_random(|| run(true), SCHEDULES);
}
