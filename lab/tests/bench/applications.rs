//! Applications of a phone on its storage: where their time goes, what reaches the device, and what
//! other storage changes.

use syncline_fs::MountOptions;
use syncline_lab::Unobserved;
use syncline_lab::bench::{AppRun, NETWORKS, Phone, Solution, phone_applications};
use syncline_nand::Profile;

struct Bench {
    image: &'static syncline_lab::bench::Image,
    mount: MountOptions,
}

impl Bench {
    fn new(test: &str) -> Option<Bench> {
        let image = crate::common::image(test)?;
        Some(Bench { image, mount: MountOptions::parse("sync=ordered").unwrap() })
    }

    fn run(&self, name: &str, device: &str, network: usize, solution: Solution) -> AppRun {
        let profile = Profile::by_name(device).unwrap();
        let builtin = Profile::by_name("emmc-nexus-s").unwrap();
        let phone = Phone { image: self.image, mount: &self.mount, seed: 1, scale_percent: 10 };
        let network = &NETWORKS[network];
        phone.run(name, &profile, &builtin, network, solution, &Unobserved).unwrap()
    }

    fn with(&self, options: &str) -> Bench {
        Bench { image: self.image, mount: MountOptions::parse(options).unwrap() }
    }
}

#[test]
fn every_application_repeats_and_its_time_is_accounted_for() {
    let Some(bench) = Bench::new("every_application_repeats_and_its_time_is_accounted_for") else {
        return;
    };
    for (name, _) in phone_applications() {
        let run = bench.run(name, "emmc-nexus-s", 0, Solution::None);
        let parts = run.cpu_s + run.network_s + run.storage_wait_s;
        assert!((parts / run.run_s - 1.0).abs() < 1e-6, "{name}: {parts} of {} s", run.run_s);
        assert!(run.counts.random_written_bytes > 0, "{name}");
        assert!(run.storage_busy_s > 0.0, "{name}");
        assert_eq!(run.flushes, 0, "{name}: nothing of this device is volatile");
        assert_eq!(run, bench.run(name, "emmc-nexus-s", 0, Solution::None), "{name}");
    }
}

#[test]
fn a_poor_card_costs_more_than_a_slow_network() {
    let Some(bench) = Bench::new("a_poor_card_costs_more_than_a_slow_network") else { return };
    let run = |device, network| bench.run("webbench", device, network, Solution::None);
    let (builtin, poor) = (run("emmc-nexus-s", 0), run("sd-kingston", 0));
    let fast_network = run("sd-kingston", 1);
    assert!(poor.run_s > 3.0 * builtin.run_s, "{} and {} s", poor.run_s, builtin.run_s);
    assert!(fast_network.network_s < poor.network_s / 3.0);
    assert!(fast_network.run_s > 2.0 * builtin.run_s, "a faster network does not help there");
    assert!(poor.storage_wait_s / poor.run_s > builtin.storage_wait_s / builtin.run_s);
}

#[test]
fn sync_modes_and_relaxed_files_save_time_and_wear() {
    let Some(bench) = Bench::new("sync_modes_and_relaxed_files_save_time_and_wear") else { return };
    let run = |options| bench.with(options).run("facebook", "sd-kingston", 0, Solution::None);
    let ordered = run("sync=ordered");
    assert_eq!(ordered.sync, "ordered");
    assert!(ordered.counts.nand_page_programs > 0 && ordered.counts.nand_erases > 0);
    for (options, name) in [
        ("sync=eager", "eager"),
        ("sync=eager,log=packed", "packed"),
        ("sync=periodic", "periodic"),
        ("sync=ordered,relaxed=*", "ordered"),
    ] {
        let with = run(options);
        assert_eq!(with.sync, name);
        assert!(with.run_s < ordered.run_s, "{options}: {} s", with.run_s);
        let (erases, before) = (with.counts.nand_erases, ordered.counts.nand_erases);
        assert!(erases < before, "{options}: {erases} erases, ordered {before}");
    }
    // The solution is the option.
    let no_sync = bench.run("facebook", "sd-kingston", 0, Solution::NoSync);
    assert_eq!(no_sync.run_s, run("sync=ordered,relaxed=*").run_s);
}

#[test]
fn pilot_solutions_help_a_poor_card() {
    let Some(bench) = Bench::new("pilot_solutions_help_a_poor_card") else { return };
    let run = |solution| bench.run("webbench", "sd-kingston", 0, solution);
    let alone = run(Solution::None);
    for solution in [Solution::FastRegion, Solution::LogAndRam, Solution::NoSync] {
        let with = run(solution);
        assert!(with.run_s < alone.run_s, "{}: {} s", solution.name(), with.run_s);
    }
    // Log, RAM and relaxed fsync together are better than each.
    let fjord = run(Solution::Fjord).run_s;
    for solution in [Solution::LogAndRam, Solution::NoSync] {
        let alone = run(solution).run_s;
        assert!(fjord <= alone, "{}: {alone} s, fjord {fjord} s", solution.name());
    }
    let err = Solution::by_name("raid").unwrap_err().to_string();
    assert!(err.contains("fast-region, stripes"), "{err}");
}
