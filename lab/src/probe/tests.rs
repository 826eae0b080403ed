//! Probes of known profiles: exact figures, what they show, and profiles fitted to them.
use crate::observer::Unobserved;
use syncline_device::{BlockDevice, Kind, MemoryDevice, Origin, VirtualClock};
use syncline_nand::{Mapping, NandDevice, Profile};

use super::*;
use std::sync::Arc;

const ORIGIN: Origin = Origin::new(Kind::Other, true);

const PLAN: Plan = Plan {
    region_bytes: 64 << 20,
    requests: 128,
    test_bytes: 4 << 20,
    test_ns: 60_000_000_000,
    sustained_bytes: 0,
    seed: 7,
};

fn probe_of(spec: &str, plan: &Plan) -> ProbeDocument {
    let profile = Profile::parse_built_in(spec).unwrap();
    let size = plan.region_bytes * DEVICE_FACTOR;
    let mut target = Simulated::new(&profile, size, 0, 0).unwrap();
    let mut document = probe(&mut target, plan, &Unobserved).unwrap();
    document.target = spec.to_owned();
    document
}

fn us(document: &ProbeDocument, name: &str) -> f64 {
    document.figure(name).unwrap_or_else(|| panic!("no figure {name}")).latency_us_mean
}

#[test]
fn figures_are_those_of_the_profile() {
    let d = probe_of("nexus7-emmc", &PLAN);
    // request_us + command_us; and with them tR, page to controller at 100 MB/s, bus at 45.
    assert_eq!(us(&d, "idle-flush"), 250.0);
    let read_us = 250.0 + 300.0 + 40.96 + 4096.0 / 45.0;
    // Sorted, so that a segment of the map is read once and not for each request.
    let sorted_us = us(&d, "sorted-read-4k");
    assert!((sorted_us / read_us - 1.0).abs() < 0.01, "{sorted_us} against {read_us}");
    assert!(us(&d, "scattered-read-4k") > 1.1 * sorted_us);
    assert_eq!(d.open_units, Some(2), "the profile keeps two runs open");
    assert_eq!(d.sync_histogram.iter().map(|bucket| bucket.calls).sum::<u64>(), 128);
    assert!(us(&d, "scattered-write-4k") > us(&d, "sorted-write-4k"));
    assert!(d.figure("sync-1024k").unwrap().requests >= 4);
    assert_eq!(d, probe_of("nexus7-emmc", &PLAN), "virtual time repeats");
    let other = Plan { seed: 8, ..PLAN };
    assert_ne!(d.figures, probe_of("nexus7-emmc", &other).figures);
}

#[test]
fn table_6_comes_out_of_a_probe() {
    // The region of the paper, one request for each 32 KiB of it.
    let plan = Plan { region_bytes: 1 << 30, test_ns: 200_000_000_000, ..PLAN };
    let d = probe_of("sd-2012", &plan);
    for (name, published_kb_per_s) in [
        ("sorted-read-4k", 4852.7),
        ("scattered-read-4k", 4836.6),
        ("sorted-write-4k", 545.2),
        ("scattered-write-4k", 8.3),
    ] {
        let ours = d.figure(name).unwrap().mb_per_s * 1000.0;
        assert!((ours / published_kb_per_s - 1.0).abs() < 0.2, "{name}: {ours}");
    }
}

#[test]
fn long_writes_show_the_cliff_of_a_write_cache() {
    let spec = "generic-emmc";
    let slc = "\n[slc]\nslc_mib = 32\nslc_dynamic_mib = 0\nslc_bits = 3\nslc_read_us = 25\n\
               slc_program_us = 150\nslc_erase_us = 2000\nslc_idle_ms = 100\n\
               slc_full = \"direct\"\nslc_rated_cycles = 30000\n";
    let text = Profile::by_name(spec).unwrap().to_toml().unwrap() + slc;
    let text = text.replace("program_us = 750", "program_us = 2500");
    let profile = Profile::from_toml("slc", &text).unwrap();
    let plan = Plan { sustained_bytes: 96 << 20, ..PLAN };
    let mut target = Simulated::new(&profile, 1 << 30, 0, 0).unwrap();
    let d = probe(&mut target, &plan, &Unobserved).unwrap();
    let s = &d.sustained[0];
    // A part is 4 MiB: at most nine fit; the tests before left random writes, which fold slowly.
    let cliff = s.cliff_part.unwrap();
    assert!((1..=9).contains(&cliff), "{s:?}");
    assert!(s.recovered_mb_per_s > 2.0 * s.mb_per_s[23], "{s:?}");
    assert!(d.text().contains("a cliff after "), "{}", d.text());
    let without = probe_of(spec, &plan);
    assert_eq!(without.sustained[0].cliff_part, None);
}

#[test]
fn a_device_is_only_read_unless_it_may_be_written() {
    let profile = Profile::by_name("nexus7-emmc").unwrap();
    let memory = Arc::new(MemoryDevice::new(16 << 20));
    memory.write(4096, &[7; 4096], ORIGIN).unwrap();
    let clock = Arc::new(VirtualClock::new(0));
    let nand = NandDevice::new(&profile, memory.clone(), clock.clone()).unwrap();
    let nand: Arc<dyn BlockDevice> = Arc::new(nand);
    let plan = Plan { region_bytes: 8 << 20, ..PLAN };
    let mut target = DeviceTarget::new(nand.clone(), clock.clone(), false);
    let d = probe(&mut target, &plan, &Unobserved).unwrap();
    assert!(!d.written && d.figure("sequential-read").is_some());
    assert!(d.figures.iter().all(|figure| figure.name.contains("read")));
    let mut held = [0; 4096];
    memory.read(4096, &mut held, ORIGIN).unwrap();
    assert_eq!(held, [7; 4096]);
    assert!(fit(&d, &plan, 4096, 50, &Unobserved).is_err());
    // Written, it gives what the model gives, and nothing beyond the region is touched.
    memory.write(8 << 20, &[9; 4096], ORIGIN).unwrap();
    let mut target = DeviceTarget::new(nand, clock, true);
    let d = probe(&mut target, &plan, &Unobserved).unwrap();
    assert_eq!(us(&d, "idle-flush"), 250.0);
    memory.read(8 << 20, &mut held, ORIGIN).unwrap();
    assert_eq!(held, [9; 4096]);
    memory.read(4096, &mut held, ORIGIN).unwrap();
    assert_ne!(held, [7; 4096]);
}

#[test]
fn documents_hold_every_figure() {
    let plan = Plan { region_bytes: 8 << 20, sustained_bytes: 4 << 20, ..PLAN };
    let d = probe_of("emmc-n900", &plan);
    let (text, html) = (d.text(), d.html(&crate::report::About::default()));
    let json: serde_json::Value = serde_json::from_str(&d.to_json()).unwrap();
    assert_eq!(json["schema"], PROBE_SCHEMA);
    assert_eq!(json["figures"].as_array().unwrap().len(), d.figures.len());
    for figure in &d.figures {
        assert!(text.contains(&figure.name) && html.contains(&figure.name), "{}", figure.name);
        assert!(figure.requests > 0 && figure.latency_us_mean > 0.0, "{figure:?}");
        assert!(figure.latency_us_p50 <= figure.latency_us_max, "{figure:?}");
    }
    assert!(html.contains("<figure") && html.contains("after a rest"));
    let small = Plan { region_bytes: 1 << 20, ..PLAN };
    let mut target = Simulated::new(&Profile::by_name("sd-2012").unwrap(), 8 << 20, 0, 0).unwrap();
    assert!(probe(&mut target, &small, &Unobserved).is_err());
}

/// Stops at a step, and keeps what it is told.
struct StopAt(u64, std::sync::Mutex<(u64, u64, u64)>);

impl Observer for StopAt {
    fn position(&self, done: u64, total: u64) {
        let mut seen = self.1.lock().unwrap();
        (seen.0, seen.1) = (done, total);
    }

    fn moved(&self, bytes: u64) {
        self.1.lock().unwrap().2 = bytes;
    }

    fn stopped(&self) -> bool {
        self.1.lock().unwrap().0 >= self.0
    }
}

#[test]
fn a_stop_anywhere_is_said() {
    let plan = Plan { region_bytes: 8 << 20, sustained_bytes: 4 << 20, ..PLAN };
    let stopped = |step| {
        let mut target =
            Simulated::new(&Profile::by_name("emmc-n900").unwrap(), 64 << 20, 0, 0).unwrap();
        let observer = StopAt(step, std::sync::Mutex::default());
        (probe(&mut target, &plan, &observer), observer.1.into_inner().unwrap())
    };
    let (whole, (steps, total, bytes)) = stopped(u64::MAX);
    let whole = whole.unwrap();
    assert!(!whole.interrupted && !whole.text().contains("Interrupted"));
    assert_eq!(steps, total, "every step is told");
    assert!(bytes > plan.region_bytes + 2 * plan.sustained_bytes, "{bytes}");
    for step in [0, 1] {
        assert!(matches!(stopped(step).0, Err(LabError::Interrupted)), "no figure at {step}");
    }
    // Among the tests, before the inner ones, and in the sustained ones.
    for step in [2, total - 2 * WINDOWS - 1, total - WINDOWS - 3, total - 1] {
        let document = stopped(step).0.unwrap();
        assert!(document.interrupted, "step {step} of {total}");
        assert!(document.text().starts_with("Interrupted: "), "step {step}");
        assert!(document.to_json().contains("\"interrupted\": true"), "step {step}");
    }
}

/// Probes a profile, fits one to the figures, probes that one.
fn round_trip(spec: &str) -> (Profile, Fit) {
    let known = Profile::parse_built_in(spec).unwrap();
    let document = probe_of(spec, &PLAN);
    let fit = fit(&document, &PLAN, 512, 450, &Unobserved).unwrap();
    // What is written to a file is what was measured.
    let text = fit.profile.to_toml().unwrap();
    let read = Profile::from_toml("fitted.toml", &text).unwrap();
    let mut target = Simulated::new(&read, PLAN.region_bytes * DEVICE_FACTOR, 0, 0).unwrap();
    let again = probe(&mut target, &PLAN, &Unobserved).unwrap();
    println!("{spec}: {:#?}", (&read.geometry, &read.timing, &read.ftl, &read.host));
    for (ours, theirs) in again.figures.iter().zip(&document.figures) {
        let off = (ours.latency_us_mean / theirs.latency_us_mean - 1.0) * 100.0;
        println!(
            "{:24} {:10.1} {:10.1} {off:+6.1} %",
            ours.name, theirs.latency_us_mean, ours.latency_us_mean
        );
    }
    let summary = &fit.summary;
    println!(
        r#"{{"profile":"{spec}","mean":{},"worst":{},"tried":{}}}"#,
        summary.mean_percent, summary.worst_percent, summary.evaluations
    );
    assert!(summary.worst_percent < 15.0, "{spec}: {:.1} %", summary.worst_percent);
    assert!(summary.mean_percent < 15.0, "{spec}: {:.1} %", summary.mean_percent);
    // What one request at a time determines.
    let request = |p: &Profile| f64::from(p.host.request_us + p.timing.command_us);
    let near = |what: &str, ours: f64, theirs: f64| {
        assert!((ours / theirs - 1.0).abs() < 0.15, "{spec}: {what} {ours}, known {theirs}");
    };
    near("request time", request(&read), request(&known));
    if spec != "emmc-n900" {
        // There the bus and the channel of one die, one after the other, can be exchanged.
        near("bus", read.timing.bus_mb_per_s.into(), known.timing.bus_mb_per_s.into());
    }
    (read, fit)
}

#[test]
fn a_tablets_emmc_is_fitted() {
    let (fitted, _) = round_trip("nexus7-emmc");
    assert_eq!((fitted.ftl.mapping, fitted.ftl.streams), (Mapping::Page, 2));
}

#[test]
fn a_card_that_merges_is_fitted() {
    let (fitted, _) = round_trip("sd-2012");
    assert!(fitted.ftl.mapping.by_superblock(), "{:?}", fitted.ftl);
}

#[test]
fn a_card_with_a_page_map_is_fitted() {
    let (fitted, _) = round_trip("sd-transcend");
    assert_eq!(fitted.ftl.mapping, Mapping::Page);
}

#[test]
fn a_phones_emmc_with_log_blocks_is_fitted() {
    let (fitted, _) = round_trip("emmc-n900");
    assert!(fitted.ftl.mapping.by_superblock(), "{:?}", fitted.ftl);
}

/// Within 10 %: what single tests show of every profile, at both ends of what is open of it.
#[test]
fn the_inside_of_every_profile_is_found() {
    let near = |found: f64, known: f64| (found / known - 1.0).abs() <= 0.1;
    let ranges = syncline_nand::profiles().map(|(name, _)| Profile::by_name(name).unwrap().range());
    for p in ranges.flat_map(|range| range.unwrap()) {
        let plan = Plan { region_bytes: 512 << 20, ..PLAN };
        let size = plan.region_bytes * DEVICE_FACTOR;
        let mut target = Simulated::new(&p, size, 0, 0).unwrap();
        fill(&mut target, &plan).unwrap();
        let found = inside(&mut target, &plan).unwrap();
        let (name, g, f) = (&p.name, &p.geometry, &p.ftl);
        let pages_bytes = g.page_bytes() * u64::from(g.dies());
        // The region fits in an SLC write cache, whose cells are those that are seen.
        let program_us = p.slc.as_ref().map_or(p.timing.program_us, |slc| slc.slc_program_us);
        // Where the bus is slower than a program of all dies, no write waits for a page. No flush
        // of a protected buffer waits for one, and the test writes no more than 256 KiB.
        let seen = !p.buffer.protected
            && pages_bytes <= 256 << 10
            && (p.timing.bus_ns(pages_bytes) < u64::from(program_us) * 1000 || g.dies() == 1);
        assert_eq!(found.program_bytes, seen.then_some(pages_bytes), "{name}: {found:?}");
        let units = f.mapping.by_superblock();
        let open = match f.streams {
            _ if units => Some(u64::from(f.log_blocks)),
            // Nothing is copied or padded where runs of 16 KiB end: all are alike.
            0 => None,
            _ if f.merge_kib == g.map_unit_kib
                && f.close_us == 0
                && f.close_map_programs == 0
                && g.page_bytes() <= 16 << 10 =>
            {
                None
            }
            streams => Some(u64::from(streams)),
        };
        assert_eq!(found.open_runs, open, "{name}: {found:?}");
        if units {
            let unit = pages_bytes * u64::from(g.pages_per_block);
            assert_eq!(found.allocation_unit_bytes, Some(unit), "{name}: {found:?}");
        }
        // No write waits where the flash is about as fast as single requests of 16 KiB.
        let t = &p.timing;
        let command_us = f64::from(t.command_us + t.dispatch_us + p.host.request_us);
        let request_us = command_us + p.timing.bus_ns(16 << 10) as f64 / 1e3;
        let page_us = g.page_bytes() as f64 / f64::from(t.channel_mb_per_s);
        let flash_us = (f64::from(program_us) + page_us) * f64::from(16 << 10) / pages_bytes as f64;
        match (p.buffer.buffer_kib, found.cache_bytes) {
            (_, cache) if !p.buffer.is_volatile() => assert_eq!(cache, None, "{name}: {found:?}"),
            (_, None) => assert!(flash_us < 1.2 * request_us, "{name}: {found:?}"),
            (kib, Some(bytes)) => {
                assert!(near(bytes as f64, f64::from(kib) * 1024.0), "{name}: {found:?}");
            }
        }
        assert_eq!(found.parallel_reads > 1.5, p.host.queue_depth > 1, "{name}: {found:?}");
        match p.buffer.is_volatile() {
            false => assert!(near(found.flush_us, command_us), "{name}: {found:?}"),
            true => assert!(
                found.flush_us > command_us + f64::from(program_us + t.flush_us),
                "{name}: {found:?}"
            ),
        }
    }
}
