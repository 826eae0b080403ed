//! Many threads on mounts with all kinds of options and images: contents while they work, after
//! another mount, and after the serving process was killed or the power cut below it.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support;
use crate::support::mounted::Mounted;
use crate::support::serving::Serving;
use syncline_testkit::posix::ledger::{self, Ledger};
use syncline_testkit::posix::stress;
use syncline_testkit::{
    ImageSpec, KernelMount, Need, Random, TempImage, e2fsck_preen, mkfs, require,
};

const NEEDS: [Need; 2] = [Need::Fuse, Need::E2fsck];

/// Rounds of each of 8 threads; 16 threads for a while with `SYNCLINE_STRESS_SECONDS`.
const ROUNDS: u64 = 150;
/// Kills or power cuts of one configuration; more with `SYNCLINE_FAULTS`.
const FAULTS: u64 = 3;
/// Configurations of a run without further parameters.
const THREADS_SHORT: [&str; 5] =
    ["eager-1m", "eager-4m", "ordered-buffer-small", "eager-full", "ordered-spatialclock"];
const KILLS_SHORT: [&str; 3] = ["eager-4m", "ordered-buffer-small", "eager-journal"];
const CUTS_SHORT: [&str; 1] = ["eager-4m"];

/// An image and how it is mounted.
struct Configuration {
    name: &'static str,
    /// `{dir}` is a directory outside of the mount.
    options: &'static str,
    /// MiB of the image; of its journal, 0: as mke2fs likes.
    size: u64,
    journal: u32,
    block_bytes: u32,
    features: &'static str,
    /// The files do not all find room.
    full: bool,
}

const PLAIN: Configuration = Configuration {
    name: "",
    options: "",
    size: 192,
    journal: 0,
    block_bytes: 4096,
    features: "",
    full: false,
};

const fn with(name: &'static str, options: &'static str) -> Configuration {
    Configuration { name, options, ..PLAIN }
}

const fn small(name: &'static str, options: &'static str) -> Configuration {
    Configuration { name, options, size: 64, journal: 4, ..PLAIN }
}

const fn full(name: &'static str, options: &'static str) -> Configuration {
    Configuration { name, options, size: 40, journal: 4, full: true, ..PLAIN }
}

const fn blocks(name: &'static str, options: &'static str, block_bytes: u32) -> Configuration {
    Configuration { name, options, block_bytes, ..PLAIN }
}

const ALL: [Configuration; 40] = [
    with("ordered", "sync=ordered"),
    with("eager", "sync=eager"),
    with("eager-1m", "sync=eager,cache=1M"),
    with("eager-4m", "sync=eager,cache=4M"),
    with("ordered-1m", "sync=ordered,cache=1M"),
    with("ordered-4m", "sync=ordered,cache=4M"),
    with("eager-threshold", "sync=eager,cache=4M,eager_threshold=0"),
    with("eager-threshold-high", "sync=eager,cache=8M,eager_threshold=100000"),
    with("eager-relaxed", "sync=eager,cache=4M,relaxed=*.cache"),
    with("ordered-relaxed", "sync=ordered,cache=4M,relaxed=*.cache"),
    with("ordered-buffer", "sync=ordered,cache=8M,relaxed=*.cache,buffer_log={dir}/log"),
    with(
        "ordered-buffer-small",
        "sync=ordered,cache=4M,relaxed=*.cache,buffer_log={dir}/log,buffer_log_size=4M,\
         buffer_ram=1M",
    ),
    with("ordered-buffer-no-ram", "sync=ordered,buffer_log={dir}/log,buffer_ram=0,cache=4M"),
    with("eager-buffer", "sync=eager,cache=4M,relaxed=*.cache,buffer_log={dir}/log"),
    with("eager-hot", "sync=eager,cache=4M,alloc=hot_zones,hot_zones=1,hot_zone_size=4M,hot=*.db"),
    with(
        "ordered-hot",
        "sync=ordered,cache=4M,alloc=hot_zones,hot_zones=1,hot_zone_size=4M,hot=*.db",
    ),
    with(
        "eager-lifetime",
        "sync=eager,cache=4M,alloc=lifetime,hot_zones=1,hot_zone_size=16M,hot=*.db",
    ),
    with(
        "ordered-lifetime",
        "sync=ordered,cache=4M,alloc=lifetime,hot_zones=1,hot_zone_size=16M,discard",
    ),
    with("eager-spatialclock", "sync=eager,cache=2M,policy=spatialclock,writeback=policy"),
    with("ordered-spatialclock", "sync=ordered,cache=2M,policy=spatialclock,writeback=policy"),
    with("eager-2q", "sync=eager,cache=2M,policy=2q,writeback=policy"),
    with("ordered-fab", "sync=ordered,cache=2M,policy=fab,writeback=policy"),
    with("eager-lru-wsr", "sync=eager,cache=2M,policy=lru-wsr,writeback=policy"),
    with("eager-for", "sync=eager,cache=2M,policy=for,writeback=policy"),
    with("ordered-cflru", "sync=ordered,cache=2M,policy=cflru,writeback=policy"),
    with("eager-sieve", "sync=eager,cache=2M,policy=sieve,writeback=policy"),
    small("eager-journal", "sync=eager,cache=4M"),
    small("ordered-journal", "sync=ordered,cache=4M"),
    full("eager-full", "sync=eager,cache=4M"),
    full("ordered-full", "sync=ordered,cache=4M"),
    full(
        "eager-full-hot",
        "sync=eager,cache=4M,alloc=hot_zones,hot_zones=1,hot_zone_size=2M,hot=*.db",
    ),
    with("eager-mtime", "sync=eager,cache=4M,mtime_update=100,lazytime"),
    with("ordered-writeback", "sync=ordered,cache=4M,writeback_cache"),
    with("eager-writeback", "sync=eager,cache=4M,writeback_cache"),
    with("eager-trace", "sync=eager,cache=4M,trace={dir}/run,trace_reads"),
    with(
        "eager-ticks",
        "sync=eager,cache=4M,commit=1,dirty_expire_centisecs=5,dirty_writeback_centisecs=2",
    ),
    blocks("eager-1k", "sync=eager,cache=2M", 1024),
    blocks("ordered-1k", "sync=ordered,cache=2M", 1024),
    blocks("eager-2k", "sync=eager,cache=2M", 2048),
    Configuration { features: "orphan_file", ..with("eager-orphans", "sync=eager,cache=2M") },
];

impl Configuration {
    fn spec(&self) -> ImageSpec {
        ImageSpec {
            block_size_bytes: self.block_bytes,
            journal_size_mib: (self.journal > 0).then_some(self.journal),
            features: self.features.to_owned(),
            ..ImageSpec::with_size(self.size << 20)
        }
    }

    fn options(&self, dir: &Path) -> String {
        self.options.replace("{dir}", dir.to_str().unwrap())
    }

    /// True if the image must not be opened by others before its unmount.
    fn buffered(&self) -> bool {
        self.options.contains("buffer_log")
    }
}

/// The configurations of a short run, or those that `SYNCLINE_STRESS_ON` names: `all`, or some with
/// commas between them.
fn chosen(short: &'static [&'static str]) -> impl Iterator<Item = &'static Configuration> {
    let on = std::env::var("SYNCLINE_STRESS_ON").ok();
    ALL.iter().filter(move |configuration| match &on {
        Some(names) => names == "all" || names.split(',').any(|name| name == configuration.name),
        None => short.contains(&configuration.name),
    })
}

/// A number from the environment: longer forms of these tests.
fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn threads_on(configuration: &Configuration, seed: u64) {
    let seconds = setting("SYNCLINE_STRESS_SECONDS");
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let more = |round| end.map_or(round < ROUNDS, |end| Instant::now() < end);
    let load = stress::Load {
        threads: if end.is_some() { 16 } else { 8 },
        files_max: if configuration.size < 100 && !configuration.full { 8 } else { 30 },
        may_be_full: configuration.full,
        seed,
    };
    let scratch = support::scratch();
    let options = configuration.options(scratch.path());
    let mut m = Mounted::new(mkfs(&configuration.spec()), &options);
    fs::create_dir(m.at("tree")).unwrap();
    let trees = stress::run(&m.at("tree"), load, &more);
    let trees = trees.unwrap_or_else(|said| panic!("{}: {said}", configuration.name));
    m.unmount_clean();
    m.mount(&options);
    stress::verify(&m.at("tree"), &trees)
        .unwrap_or_else(|said| panic!("{}, after another mount: {said}", configuration.name));
    fs::remove_dir_all(m.at("tree")).unwrap();
    m.unmount_clean();
}

#[test]
fn threads_in_every_configuration() {
    if require("threads_in_every_configuration", &NEEDS) {
        for (nr, configuration) in chosen(&THREADS_SHORT).enumerate() {
            let began = Instant::now();
            threads_on(configuration, 100 + nr as u64);
            println!("{}: {:.1?}", configuration.name, began.elapsed());
        }
    }
}

/// End of a mount by force.
enum Fault {
    /// The serving process is killed.
    Kill,
    /// The power of the device is cut, and everything that ran is gone.
    Cut(Serving),
}

struct Struck<'a> {
    configuration: &'a Configuration,
    options: String,
    fault: Fault,
    ledger: Ledger,
    m: Mounted,
}

impl Struck<'_> {
    /// Works, is struck, and recovers; the volume is mounted before and after.
    fn strike(&mut self, nr: u64, pause: Duration) -> Result<(), String> {
        let falling = AtomicBool::new(false);
        let (m, ledger) = (&self.m, &self.ledger);
        std::thread::scope(|scope| {
            let working = scope.spawn(|| ledger.work(&m.dir, nr, &falling));
            std::thread::sleep(pause);
            falling.store(true, Ordering::SeqCst);
            if let Fault::Cut(serving) = &self.fault {
                serving.power("cut");
            }
            m.kill_serving();
            working.join().unwrap_or_else(|_| Err("a thread panicked".to_owned()))
        })?;
        self.m.bury();
        if let Fault::Cut(serving) = &self.fault {
            serving.power("on");
        }
        if !self.configuration.buffered() {
            self.judge()?;
        }
        self.m.mount(&self.options);
        self.ledger.adopt(&self.m.dir).map_err(|said| format!("recovered by the mount: {said}"))?;
        if self.configuration.buffered() {
            self.m.unmount_clean();
            self.m.mount(&self.options);
        }
        Ok(())
    }

    /// Stock e2fsck recovers a copy, and the kernel then finds what is allowed.
    fn judge(&self) -> Result<(), String> {
        let copy = match &self.fault {
            Fault::Kill => self.m.image.duplicate(),
            Fault::Cut(serving) => {
                let copy = TempImage::zeroed(0);
                fs::copy(serving.flash(), copy.path()).map_err(|err| err.to_string())?;
                copy
            }
        };
        e2fsck_preen(copy.path())?;
        if [Need::Root, Need::Loop].iter().any(|need| need.missing().is_some()) {
            return Ok(());
        }
        let kernel = KernelMount::new(copy.path(), "ro")?;
        let differences = self.ledger.differences(kernel.path());
        kernel.unmount()?;
        if differences.is_empty() {
            return Ok(());
        }
        Err(format!("recovered by e2fsck: {}", differences.join("\n")))
    }
}

fn struck(configuration: &Configuration, cut: bool, seed: u64) {
    let scratch = support::scratch();
    let options = configuration.options(scratch.path());
    // The device of the power cuts is as slow as the one it models, and copied each time.
    let size = if cut { configuration.size.min(48) } else { configuration.size };
    let image = mkfs(&Configuration { size, ..*configuration }.spec());
    let (fault, source) = if cut {
        let (serving, _) = Serving::start(&["--image", image.path().to_str().unwrap()]);
        let source = serving.flash();
        (Fault::Cut(serving), Some(source))
    } else {
        (Fault::Kill, None)
    };
    let load = ledger::Load { writers: 5, syncers: 2, churners: 2, files: 4, sectors_max: 1500 };
    let ledger = Ledger::new(load, seed);
    let m = Mounted::prepared(image, source);
    let mut struck = Struck { configuration, options, fault, ledger, m };
    struck.m.mount(&struck.options);
    struck.ledger.prepare(&struck.m.dir).unwrap();
    let mut rng = Random::new(seed);
    let faults = setting("SYNCLINE_FAULTS").unwrap_or(FAULTS);
    for nr in 0..faults {
        let pause = Duration::from_millis(20 + rng.below(if cut { 1500 } else { 400 }));
        struck.strike(nr, pause).unwrap_or_else(|said| {
            panic!("{}, seed {seed}, fault {nr}: {said}", configuration.name);
        });
    }
    struck.m.unmount_clean();
    let acknowledged = struck.ledger.acknowledged();
    println!("{}: {acknowledged} syncs acknowledged, {faults} faults", configuration.name);
}

#[test]
fn kills_among_threads_in_every_configuration() {
    if require("kills_among_threads_in_every_configuration", &NEEDS) {
        let struck_ones = chosen(&KILLS_SHORT).filter(|configuration| !configuration.full);
        for (nr, configuration) in struck_ones.enumerate() {
            struck(configuration, false, 200 + nr as u64);
        }
    }
}

#[test]
fn power_cuts_among_threads_in_every_configuration() {
    let name = "power_cuts_among_threads_in_every_configuration";
    if require(name, &[Need::Fuse, Need::E2fsck, Need::Root]) {
        let struck_ones = chosen(&CUTS_SHORT)
            .filter(|configuration| !configuration.full && !configuration.buffered())
            // With one group there is no backup superblock, and e2fsck -p then leaves what was in
            // an orphan file to the next full check, also on a kernel's image.
            .filter(|configuration| configuration.features.is_empty());
        for (nr, configuration) in struck_ones.enumerate() {
            struck(configuration, true, 300 + nr as u64);
        }
    }
}
