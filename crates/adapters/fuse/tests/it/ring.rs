//! Requests through io_uring; see `src/wire/ring.rs`. A kernel that offers it to new mounts runs
//! every other test of this crate through it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use syncline_testkit::{Need, UringOffer, require};

use crate::image;
use crate::mounted::Mounted;

const NEEDS: [Need; 2] = [Need::Fuse, Need::E2fsck];

fn offer(test: &str) -> Option<UringOffer> {
    if require(test, &NEEDS) { UringOffer::on(test) } else { None }
}

fn transport(mounted: &Mounted) -> String {
    mounted.status()["transport"].as_str().unwrap().to_owned()
}

/// Requests with names, with data, with much data, with attributes, and with none of them.
fn work(dir: &Path) {
    let data: Vec<u8> = (0..3_000_000_u32).map(|nr| (nr.wrapping_mul(nr) >> 7) as u8).collect();
    fs::create_dir_all(dir.join("a/b")).unwrap();
    fs::write(dir.join("a/large"), &data).unwrap();
    assert_eq!(fs::read(dir.join("a/large")).unwrap(), data);
    fs::rename(dir.join("a/large"), dir.join("a/b/renamed")).unwrap();
    std::os::unix::fs::symlink("x".repeat(3000), dir.join("link")).unwrap();
    assert_eq!(fs::read_link(dir.join("link")).unwrap().as_os_str().len(), 3000);
    let (name, value) = ("user.large", [7; 3000]);
    let set = rustix::fs::setxattr(dir, name, &value, rustix::fs::XattrFlags::empty());
    set.unwrap();
    let mut got = [0; 4000];
    assert_eq!(rustix::fs::getxattr(dir, name, &mut got[..]), Ok(value.len()));
    assert!(rustix::fs::getxattr(dir, name, &mut got[..10]).is_err());
    (0..500).for_each(|nr| drop(File::create(dir.join(format!("a/{nr}"))).unwrap()));
    assert_eq!(fs::read_dir(dir.join("a")).unwrap().count(), 501);
}

#[test]
fn requests_come_through_io_uring_where_the_kernel_offers_it() {
    let Some(_offer) = offer("requests_come_through_io_uring_where_the_kernel_offers_it") else {
        return;
    };
    let mut m = Mounted::new(image(), "");
    assert_eq!(transport(&m), "io_uring");
    work(&m.dir);
    m.unmount_clean();
    m.mount("threads=1");
    assert_eq!(transport(&m), "io_uring", "one worker has every queue");
    work(&m.dir.join("a"));
    m.unmount_clean();
    m.mount("uring=off");
    assert_eq!(transport(&m), "/dev/fuse");
    assert_eq!(fs::read_dir(m.dir.join("a")).unwrap().count(), 503);
    m.unmount_clean();
}

#[test]
fn a_mount_keeps_its_transport_when_the_offer_changes() {
    let Some(offer) = offer("a_mount_keeps_its_transport_when_the_offer_changes") else {
        return;
    };
    let mut m = Mounted::new(image(), "");
    offer.set(false);
    work(&m.dir);
    assert_eq!(transport(&m), "io_uring");
    m.unmount_clean();
    m.mount("");
    assert_eq!(transport(&m), "/dev/fuse");
    offer.set(true);
    work(&m.dir.join("a"));
    m.unmount_clean();
}

/// More syncs than workers from every processor, beside other requests; then the server is killed
/// while requests are under way.
#[test]
fn syncs_from_every_processor_and_a_kill_lose_nothing() {
    let Some(_offer) = offer("syncs_from_every_processor_and_a_kill_lose_nothing") else {
        return;
    };
    let mut m = Mounted::new(image(), "");
    let (dir, synced) = (&m.dir.clone(), |nr: u8| [nr; 40_000]);
    thread::scope(|scope| {
        for nr in 0..40 {
            scope.spawn(move || {
                let file = File::create(dir.join(format!("synced{nr}"))).unwrap();
                file.write_all_at(&synced(nr), 0).unwrap();
                file.sync_all().unwrap();
                fs::read_dir(dir).unwrap().for_each(drop);
            });
        }
    });
    thread::scope(|scope| {
        // Until the mount is gone.
        let writes = |nr: u8| {
            let made = |at: u32| fs::write(dir.join(format!("more{nr}-{at}")), [nr; 5000]).is_ok();
            (0..).take_while(|at| made(*at)).count()
        };
        let writers: Vec<_> = (0..4).map(|nr| scope.spawn(move || writes(nr))).collect();
        // Each has ended a write then, whenever it was given time.
        while !(0..4).all(|nr| dir.join(format!("more{nr}-9")).exists()) {
            thread::yield_now();
        }
        m.kill_serving();
        assert!(writers.into_iter().all(|writer| writer.join().unwrap() > 0));
    });
    m.bury();
    m.mount("");
    for nr in 0..40 {
        assert_eq!(fs::read(m.dir.join(format!("synced{nr}"))).unwrap(), synced(nr));
    }
    m.unmount_clean();
}

/// A worker that leaves its processor to programs still gets time when they want all of it.
#[test]
fn programs_that_use_every_processor_starve_no_request() {
    let test = "programs_that_use_every_processor_starve_no_request";
    let Some(_offer) = offer(test) else { return };
    let mut m = Mounted::new(image(), "");
    let calls = |count: u32| {
        (0..count).for_each(|nr| fs::write(m.at(format!("file{nr}")), "x").unwrap());
    };
    // Workers become idle threads, and stay it for a while.
    calls(2000);
    let over = AtomicBool::new(false);
    let took = thread::scope(|scope| {
        for _ in 0..2 * thread::available_parallelism().unwrap().get() {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop()
                }
            });
        }
        let began = Instant::now();
        calls(200);
        over.store(true, Ordering::Relaxed);
        began.elapsed()
    });
    // Idle threads get a third of a hundredth of a processor: each call would take a second.
    assert!(took < Duration::from_secs(60), "{took:?}");
    m.unmount_clean();
}
