//! Downloads that ship, as the clients made them and with their file as a FlashLite log: erases, on
//! the mapping that suffers from random writes.

use syncline_fs::MountOptions;
use syncline_lab::Unobserved;
use syncline_lab::bench::{Image, ImageSource};
use syncline_lab::replay::{Contents, Replay, ReplayTrace};
use syncline_nand::Profile;

/// Superblocks of 512 KiB, 16 of them for the log.
const BAST: &str = "generic-emmc:mapping=bast,log_blocks=16,channels=1,dies_per_channel=1,\
                    planes=1,page_kib=4,pages_per_block=128";

/// Name; erases as it is, and with FlashLite, the plain file at the end included.
const GOLDEN: [(&str, u64, u64); 3] = [
    ("download-aria2", 354, 383),
    ("download-transmission", 554, 287),
    ("download-qbittorrent", 798, 294),
];

#[test]
fn a_log_saves_erases_of_scattered_downloads() {
    let image = Image::load(&ImageSource::New { size_bytes: 512 << 20 }).unwrap();
    let profile = Profile::parse_built_in(BAST).unwrap();
    let mount = MountOptions::parse("sync=ordered,cache=4M").unwrap();
    let shipped = ReplayTrace::downloads().unwrap();
    let run = |trace: &ReplayTrace, flashlite| {
        let replay = Replay {
            profile: &profile,
            image: &image,
            mount: &mount,
            gap_max_ns: 0,
            seed: 1,
            contents: Contents::Noise,
            fill_percent: None,
            flashlite,
            used: true,
        };
        let replayed = replay.run(trace, &Unobserved).unwrap();
        assert_eq!(replayed.skipped, 0, "{}", trace.name);
        replayed.run
    };
    for (name, plain, log) in GOLDEN {
        let trace = shipped.iter().find(|trace| trace.name == name).unwrap();
        let found = [None, Some("film.iso*")].map(|flashlite| run(trace, flashlite));
        let erases = |n: usize| found[n].metrics.device.as_ref().unwrap().nand_erases;
        assert_eq!((erases(0), erases(1)), (plain, log), "{name}");
        // What the program waits for is written in order.
        let device = found[1].foreground.device.as_ref().unwrap();
        assert!(device.sequential_ratio > 0.97, "{name}: {}", device.sequential_ratio);
        assert_eq!(found[1].config.label(), "ordered flashlite");
        assert_eq!(found[1].metrics.operations, found[0].metrics.operations, "{name}");
    }
}

#[test]
fn a_bad_glob_is_refused() {
    let image = Image::load(&ImageSource::New { size_bytes: 16 << 20 }).unwrap();
    let profile = Profile::by_name("nexus7-emmc").unwrap();
    let replay = Replay {
        profile: &profile,
        image: &image,
        mount: &MountOptions::default(),
        gap_max_ns: 0,
        seed: 1,
        contents: Contents::Same,
        fill_percent: None,
        flashlite: Some("["),
        used: false,
    };
    let error = replay.run(&ReplayTrace::default(), &Unobserved).unwrap_err().to_string();
    assert!(error.contains("correct the glob"), "{error}");
}
