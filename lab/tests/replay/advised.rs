//! The advice of `advise` beside a search of its own: ten captures on three devices, every
//! combination that a mount takes.

use std::fs::File;
use std::path::{Path, PathBuf};

use syncline_fs::MountOptions;
use syncline_lab::Unobserved;
use syncline_lab::bench::{Image, ImageSource};
use syncline_lab::experiments::{Advise, Bench, Keeps, Trial};
use syncline_lab::replay::{Contents, Replay, ReplayTrace};
use syncline_lab::trace::{Header, Sink, TraceKind, TraceWriter};
use syncline_nand::Profile;
use syncline_testkit::{Need, require};

/// Calls of each capture: whole ones take minutes.
const CALLS: usize = 800;
const VOLUME_MIB: u64 = 256;

/// Nine captured programs, and a download with syncs.
fn captures() -> Vec<ReplayTrace> {
    let mut captures = ReplayTrace::shipped().unwrap();
    let downloads = ReplayTrace::downloads().unwrap();
    captures.extend(downloads.into_iter().filter(|trace| trace.name == "download-aria2-torrent"));
    captures.iter_mut().for_each(|trace| trace.records.truncate(CALLS));
    assert_eq!(captures.len(), 10);
    captures
}

/// Options, what a cut of the power keeps, any Linux recovers the image, and a write buffer.
type Combination = (String, Keeps, bool, bool);

fn combinations() -> Vec<Combination> {
    let mut all = Vec::new();
    for sync in ["ordered", "eager", "periodic"] {
        for bits in 0..8 {
            let [packed, relaxed, buffer] = [1, 2, 4].map(|bit| bits & bit > 0);
            // A mount refuses these.
            if packed && sync == "ordered" || relaxed && sync == "periodic" {
                continue;
            }
            for times in ["", ",mtime_update=seen"] {
                let more = [(packed, ",log=packed"), (true, times), (relaxed, ",relaxed=*")];
                let more: String = more.map(|(is_on, text)| if is_on { text } else { "" }).concat();
                let keeps = match sync {
                    "periodic" => Keeps::SyncPoint,
                    _ if relaxed => Keeps::Minute,
                    _ => Keeps::Syncs,
                };
                all.push((format!("sync={sync}{more}"), keeps, !packed && !buffer, buffer));
            }
        }
    }
    all
}

/// Seconds up to the last call, and with the unmount.
fn seconds(trace: &ReplayTrace, image: &Image, device: &str, one: &Combination) -> [f64; 2] {
    let (options, _, _, buffer) = one;
    let replay = Replay {
        profile: &Profile::parse_built_in(device).unwrap(),
        image,
        mount: &MountOptions::parse(options).unwrap(),
        gap_max_ns: 0,
        seed: 1,
        contents: Contents::Noise,
        fill_percent: None,
        flashlite: None,
        used: false,
    };
    let run = replay.run_over(trace, buffer.then_some(64 << 20), &Unobserved).unwrap().run;
    [run.foreground.duration_s, run.metrics.duration_s]
}

/// As a file, for `advise`.
fn write(trace: &ReplayTrace, dir: &Path) -> PathBuf {
    let path = dir.join(&trace.name);
    let header = Header { kind: TraceKind::Syscall, source: "a test".to_owned() };
    let mut writer = TraceWriter::new(File::create(&path).unwrap(), &header).unwrap();
    trace.records.iter().for_each(|record| writer.record(&trace.names, record).unwrap());
    writer.finish(&trace.names).unwrap();
    path
}

/// The score is that of `advise`: each of the two times as a share of the shortest with the same
/// promise, and the smaller of these.
fn check(advised: &Trial, of: &[(&Combination, [f64; 2])]) -> Result<(), String> {
    let least = |at: usize| of.iter().map(|(_, times)| times[at]).fold(f64::MAX, f64::min);
    let score = |times: [f64; 2]| (least(0) / times[0]).min(least(1) / times[1]);
    let own = [advised.foreground_s, advised.whole_s];
    let measured = of.iter().find(|((options, _, _, buffer), _)| {
        (options, *buffer) == (&advised.remedy.options, advised.remedy.buffer)
    });
    assert_eq!(measured.map(|(_, times)| *times), Some(own), "{:?}", advised.remedy);
    let better = of.iter().find(|(_, times)| score(own) < 0.97 * score(*times));
    better.map_or(Ok(()), |better| Err(format!("{own:?}: {advised:?}; {better:?}")))
}

#[test]
fn the_advised_options_are_within_three_per_cent_of_the_best_of_all() {
    if !require("the_advised_options_are_within_three_per_cent", &[Need::E2fsck]) {
        return;
    }
    let image = Image::load(&ImageSource::New { size_bytes: VOLUME_MIB << 20 }).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let combinations = combinations();
    let mut wrong = Vec::new();
    for capture in captures() {
        let path = write(&capture, dir.path());
        for device in ["nexus7-emmc", "sd-2012", "ufs-4"] {
            let (device_name, trace) = (device.to_owned(), vec![path.clone()]);
            let bench = Bench { device: device_name, trace, size: VOLUME_MIB, ..Bench::default() };
            let advice = Advise { bench, per_day: None }.run(&Unobserved).unwrap();
            let time = |one| (one, seconds(&capture, &image, device, one));
            let all: Vec<(&Combination, [f64; 2])> = combinations.iter().map(time).collect();
            for keeps in [Keeps::Syncs, Keeps::SyncPoint, Keeps::Minute] {
                for linux in [true, false] {
                    let of = all.iter().filter(|(one, _)| (one.1, one.2) == (keeps, linux));
                    let of: Vec<_> = of.copied().collect();
                    if let Err(text) = check(advice.best(keeps, linux).unwrap(), &of) {
                        wrong.push(format!("{} {device}: {text}", capture.name));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
