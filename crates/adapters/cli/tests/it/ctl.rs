//! `syncline ctl`: settings and policies of a buffer while it serves, marks on files of a mount.

use std::path::{Path, PathBuf};

use crate::support;
use crate::support::mounted::Mounted;
use crate::support::{done, refused, run, scratch};
use serde_json::Value;
use syncline_testkit::{ImageSpec, Need, debugfs, mkfs, require};

/// A buffer over NBD: needs neither root nor FUSE. Detached at the end.
struct Served(tempfile::TempDir);

impl Served {
    fn start(more: &[&str]) -> Served {
        let dir = scratch();
        std::fs::create_dir(dir.path().join("dir")).unwrap();
        std::fs::File::create(dir.path().join("device")).unwrap().set_len(16 << 20).unwrap();
        let served = Served(dir);
        let (device, dir, log) = (served.text("device"), served.text("dir"), served.text("log"));
        let words = ["buffer", "attach", &device, &dir, "--log", &log, "--create", "--as", "nbd"];
        done(&[&words[..], &["--log-size", "4M"], more].concat());
        served
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn set(&self, settings: &[&str]) {
        assert_eq!(done(&[&["ctl", "set", &self.text("dir")], settings].concat()), "");
    }

    fn settings(&self) -> Value {
        let text = done(&["ctl", "status", &self.text("dir")]);
        serde_json::from_str::<Value>(&text).unwrap()["settings"].take()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        run(&["buffer", "detach", &self.text("dir")]);
    }
}

#[test]
fn settings_of_a_buffer_change_while_it_serves() {
    let served = Served::start(&["--policy", "auto-ram,power"]);
    let dir = served.text("dir");
    assert_eq!(served.settings()["policies"], serde_json::json!(["power", "auto-ram"]));
    served.set(&["auto-ram=off", "ram=2M", "log=off", "relaxed_expire=5", "session=on"]);
    let settings = served.settings();
    assert_eq!((&settings["ram_bytes"], &settings["log"]), (&(2 << 20).into(), &false.into()));
    assert_eq!(settings["relaxed_expire_s"], 5.0);
    assert_eq!(settings["policies"], serde_json::json!(["power", "session"]));
    // All or none.
    let said = refused(1, &["ctl", "set", &dir, "ram=4M", "moon=on"]);
    assert!(said.contains("`moon` is not a setting"), "{said}");
    assert_eq!(served.settings()["ram_bytes"], 2 << 20);
    let shown = done(&["top", "--once", "--interval", "100", &dir]);
    assert!(shown.contains("with log") && shown.contains("power, session"), "{shown}");
    served.set(&["ram=off"]);
    assert_eq!(served.settings()["ram_bytes"], 0);
    done(&["ctl", "clean", &dir]);
    refused(2, &["ctl", "set", &dir, "ram=4M\nlog=on"]);
    let nobody = served.text("device");
    let said = refused(1, &["ctl", "set", &nobody, "ram=4M"]);
    assert!(said.contains("buffer attach"), "{said}");
}

#[test]
fn the_size_in_memory_follows_the_load() {
    let served = Served::start(&["--policy", "auto-ram", "--ram", "32M"]);
    // Empty for five seconds: half; the pure policy is tested second by second elsewhere.
    let began = std::time::Instant::now();
    while served.settings()["ram_bytes"] != 16 << 20 {
        assert!(began.elapsed().as_secs() < 120, "{}", served.settings());
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert!(served.settings()["last_change"].as_str().unwrap().starts_with("auto-ram"));
}

fn durability(path: &Path) -> Option<String> {
    let mut value = [0; 16];
    let length = rustix::fs::getxattr(path, "user.syncline.durability", &mut value[..]).ok()?;
    Some(String::from_utf8_lossy(&value[..length]).into_owned())
}

#[test]
fn files_of_a_mount_are_marked_and_others_are_not() {
    let test = "files_of_a_mount_are_marked_and_others_are_not";
    if !require(test, &[Need::Fuse, Need::E2fsck]) {
        return;
    }
    let mut mounted = Mounted::new(mkfs(&ImageSpec::with_size(16 << 20)), "");
    let (file, dir) = (mounted.at("a.db"), mounted.at("cache"));
    std::fs::write(&file, "x").unwrap();
    std::fs::create_dir(&dir).unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    done(&["ctl", "relax", &text(&file), &text(&dir)]);
    assert_eq!(durability(&file).as_deref(), Some("relaxed"));
    std::fs::write(dir.join("new"), "y").unwrap();
    assert_eq!(durability(&dir.join("new")).as_deref(), Some("relaxed"));
    done(&["ctl", "strict", &text(&file)]);
    assert_eq!(durability(&file).as_deref(), Some("strict"));
    let status: Value =
        serde_json::from_str(&done(&["ctl", "status", &text(&mounted.dir)])).unwrap();
    assert_eq!(status["schema"], "syncline.status/1");
    assert_eq!(status["files"][0]["name"], "a.db");
    let shown = done(&["top", "--once", "--interval", "100", &text(&mounted.dir)]);
    assert!(shown.contains("sync=eager") && shown.contains("a.db"), "{shown}");
    refused(2, &["top", &text(&mounted.dir)]);
    let elsewhere = scratch();
    let other = support::file(elsewhere.path(), "other", "z");
    let said = refused(1, &["ctl", "relax", &text(&other)]);
    assert!(said.contains("not on a Syncline mount"), "{said}");
    assert_eq!(durability(&other), None);
    mounted.unmount_clean();
}

#[test]
fn files_move_into_a_zone_where_the_mount_has_one() {
    let test = "files_move_into_a_zone_where_the_mount_has_one";
    if !require(test, &[Need::Fuse, Need::E2fsck]) {
        return;
    }
    let mut mounted = Mounted::new(mkfs(&ImageSpec::with_size(128 << 20)), "alloc=default");
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|i| (i / 7) as u8).collect();
    std::fs::create_dir(mounted.at("d")).unwrap();
    // What was first is where the zone will be.
    std::fs::write(mounted.at("first.bin"), vec![1; 32 << 20]).unwrap();
    std::fs::File::open(mounted.at("first.bin")).unwrap().sync_all().unwrap();
    for path in ["a.bin", "d/b.bin"] {
        std::fs::write(mounted.at(path), &bytes).unwrap();
        std::fs::File::open(mounted.at(path)).unwrap().sync_all().unwrap();
    }
    std::fs::remove_file(mounted.at("first.bin")).unwrap();
    let text = |path: PathBuf| path.to_str().unwrap().to_owned();
    let (a, d) = (text(mounted.at("a.bin")), text(mounted.at("d")));
    let said = refused(1, &["ctl", "relocate", &a]);
    assert!(said.contains("mount with -o alloc=hot_zones"), "{said}");
    mounted.unmount_clean();
    let blocks = |mounted: &Mounted| -> Vec<Vec<u64>> {
        ["/a.bin", "/d/b.bin"]
            .map(|path| {
                let said = debugfs(mounted.image.path(), &format!("blocks {path}\n"));
                said.split_whitespace().filter_map(|word| word.parse().ok()).collect()
            })
            .to_vec()
    };
    let before = blocks(&mounted);
    mounted.mount("alloc=hot_zones,hot_zone_size=16M");
    assert_eq!(done(&["ctl", "relocate", &a, &d]), "");
    for path in ["a.bin", "d/b.bin"] {
        assert!(std::fs::read(mounted.at(path)).unwrap() == bytes, "{path}");
    }
    mounted.unmount_clean();
    for (before, after) in before.iter().zip(blocks(&mounted)) {
        assert_eq!(before.len(), after.len(), "{before:?} {after:?}");
        assert!(after.len() >= 733, "{after:?}");
        assert!(after.iter().all(|block| !before.contains(block)), "{before:?} {after:?}");
    }
    let elsewhere = scratch();
    let other = support::file(elsewhere.path(), "other", "z");
    let said = refused(1, &["ctl", "relocate", &text(other)]);
    assert!(said.contains("not on a Syncline mount"), "{said}");
}

/// Flushes of the device under a mount.
fn flushes(status: &Value) -> u64 {
    status["device"]["flushes"].as_u64().unwrap()
}

fn status_of(mounted: &Mounted) -> Value {
    serde_json::from_str(&done(&["ctl", "status", mounted.dir.to_str().unwrap()])).unwrap()
}

/// Returns the flushes of a write and fsync of this file of the mount.
fn flushed_by(mounted: &Mounted, name: &str) -> u64 {
    use std::io::Write;
    let before = flushes(&status_of(mounted));
    let file = std::fs::File::options().create(true).append(true).open(mounted.at(name));
    let mut file = file.unwrap();
    file.write_all(&[7; 8192]).unwrap();
    file.sync_all().unwrap();
    flushes(&status_of(mounted)) - before
}

#[test]
fn settings_of_a_mount_change_while_it_serves() {
    let test = "settings_of_a_mount_change_while_it_serves";
    if !require(test, &[Need::Fuse, Need::E2fsck]) {
        return;
    }
    // Relaxed files on and off, limits; a mount without a buffer has none of its settings.
    let options = "sync=ordered,relaxed=*.cache,commit=900,dirty_expire_centisecs=90000";
    let mut mounted = Mounted::new(mkfs(&ImageSpec::with_size(16 << 20)), options);
    let dir = mounted.dir.to_str().unwrap().to_owned();
    assert_eq!(flushed_by(&mounted, "a.cache"), 0);
    done(&["ctl", "set", &dir, "relaxed=off", "dirty_expire=5", "dirty_ratio=10"]);
    let settings = status_of(&mounted)["settings"].take();
    assert_eq!((&settings["relaxed"], &settings["dirty_ratio"]), (&false.into(), &10.into()));
    assert_eq!(settings["dirty_expire_s"], 5.0);
    assert!(flushed_by(&mounted, "a.cache") > 0);
    let policies = || status_of(&mounted)["settings"]["policies"].take();
    assert_eq!(policies(), serde_json::json!(["power", "session"]), "with relaxed=");
    done(&["ctl", "set", &dir, "relaxed=on", "session=off"]);
    assert_eq!(flushed_by(&mounted, "a.cache"), 0);
    assert_eq!(policies(), serde_json::json!(["power"]));
    for (bad, why) in [
        ("ram=4M", "this mount has none (-o buffer_log=LOG)"),
        ("relaxed=maybe", "on or off"),
        ("dirty_ratio=0", "per cent"),
        ("dirty_expire=0", "seconds"),
        ("moon=on", "there are relaxed, dirty_expire"),
    ] {
        let said = refused(1, &["ctl", "set", &dir, "dirty_background_ratio=3", bad]);
        assert!(said.contains(why), "{said}");
    }
    assert_eq!(status_of(&mounted)["settings"]["dirty_background_ratio"], 10);
    done(&["ctl", "clean", &dir]);
    assert_eq!(status_of(&mounted)["dirty_bytes"], 0);
    mounted.unmount_clean();
    let said = refused(1, &["ctl", "set", &dir, "relaxed=off"]);
    assert!(said.contains("syncline mount"), "{said}");

    // With a buffer, the settings of both.
    let place = scratch();
    let log = place.path().join("log");
    let options = format!("{options},buffer_log={},buffer_log_size=4M,auto_ram=on", log.display());
    mounted.mount(&options);
    let policies = status_of(&mounted)["settings"]["policies"].take();
    assert_eq!(policies, serde_json::json!(["power", "session", "auto-ram"]));
    done(&["ctl", "set", &dir, "ram=2M", "log=off", "relaxed=off", "auto-ram=off"]);
    let status = status_of(&mounted);
    let settings = &status["settings"];
    assert_eq!(settings["policies"], serde_json::json!(["power", "session"]));
    assert_eq!((&settings["ram_bytes"], &settings["log"]), (&(2 << 20).into(), &false.into()));
    assert_eq!(settings["relaxed"], false);
    assert!(flushed_by(&mounted, "b.cache") > 0);
    done(&["ctl", "clean", &dir]);
    assert_eq!(status_of(&mounted)["buffer"]["mapped_pages"], 0);
    mounted.unmount_clean();
}

/// Waits until the settings of a mount are like this.
fn wait_for(mounted: &Mounted, what: &str, wanted: impl Fn(&Value) -> bool) {
    for _ in 0..1200 {
        if wanted(&status_of(mounted)["settings"]) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("{what}: {}", status_of(mounted));
}

/// A policy that was set, at the mount or later, stays as it was set.
#[test]
fn the_first_deferred_fsync_brings_the_policies() {
    if !require("the_first_deferred_fsync_brings_the_policies", &[Need::Fuse, Need::E2fsck]) {
        return;
    }
    let mut mounted = Mounted::new(mkfs(&ImageSpec::with_size(16 << 20)), "session=off");
    let (path, dir) = (mounted.at("a.db"), mounted.dir.to_str().unwrap().to_owned());
    let file = std::fs::File::create(&path).unwrap();
    let now = |wanted: &[&str]| {
        let wanted = serde_json::json!(wanted);
        wait_for(&mounted, "policies", |settings| settings["policies"] == wanted);
    };
    file.sync_all().unwrap();
    now(&[]);
    done(&["ctl", "relax", path.to_str().unwrap()]);
    file.sync_all().unwrap();
    now(&["power"]);
    drop(file);
    mounted.unmount_clean();
    mounted.mount("");
    done(&["ctl", "set", &dir, "power=off"]);
    std::fs::File::open(&path).unwrap().sync_all().unwrap();
    wait_for(&mounted, "session", |settings| {
        settings["policies"] == serde_json::json!(["session"])
    });
    mounted.unmount_clean();
}

#[test]
fn a_program_of_the_user_says_power_and_session() {
    use std::os::unix::fs::PermissionsExt;
    let test = "a_program_of_the_user_says_power_and_session";
    if !require(test, &[Need::Fuse, Need::E2fsck]) {
        return;
    }
    let place = scratch();
    let (said, sensor) = (place.path().join("said"), place.path().join("sensor"));
    std::fs::write(&said, "power=good session=active").unwrap();
    std::fs::write(&sensor, format!("#!/bin/sh\nexec cat {}\n", said.display())).unwrap();
    std::fs::set_permissions(&sensor, PermissionsExt::from_mode(0o755)).unwrap();
    let options = format!("sync=ordered,relaxed=*.cache,commit=900,sensor={}", sensor.display());
    let mut mounted = Mounted::new(mkfs(&ImageSpec::with_size(16 << 20)), &options);
    wait_for(&mounted, "it runs", |now| now["power"] == "good" && now["session"] == "active");
    assert_eq!(flushed_by(&mounted, "a.cache"), 0);
    assert_eq!(status_of(&mounted)["settings"]["relaxed"], true);

    // Every file is strict, and what waited is durable.
    std::fs::write(&said, "power=failing").unwrap();
    wait_for(&mounted, "strict", |now| now["relaxed_off_by_policy"] == true);
    assert_eq!(status_of(&mounted)["dirty_bytes"], 0);
    assert!(flushed_by(&mounted, "a.cache") > 0);
    assert_eq!(status_of(&mounted)["settings"]["session"], "unknown");
    std::fs::write(&said, "power=good session=active").unwrap();
    wait_for(&mounted, "relaxed again", |now| now["relaxed"] == true);

    // The user goes: what waited is durable.
    assert_eq!(flushed_by(&mounted, "a.cache"), 0);
    assert!(status_of(&mounted)["dirty_bytes"].as_u64().unwrap() > 0);
    std::fs::write(&said, "session=away").unwrap();
    wait_for(&mounted, "clean", |now| now["last_change"] == "session: clean");
    assert_eq!(status_of(&mounted)["dirty_bytes"], 0);

    // A program that fails says nothing: no policy changes anything.
    std::fs::write(&said, "power=low").unwrap();
    wait_for(&mounted, "unknown", |now| now["power"] == "unknown" && now["session"] == "unknown");
    assert_eq!(status_of(&mounted)["settings"]["relaxed"], true);
    mounted.unmount_clean();
}

/// The number in front of everything that a program has written with fsync after each.
fn record(mounted: &Mounted, number: u64) {
    use std::os::unix::fs::FileExt;
    for name in ["first", "second"] {
        let mut options = std::fs::File::options();
        let options = options.create(true).truncate(false).write(true);
        let file = options.open(mounted.at(name)).unwrap();
        file.write_all_at(&number.to_le_bytes(), 0).unwrap();
        file.sync_all().unwrap();
    }
}

fn recorded(mounted: &Mounted, name: &str) -> u64 {
    let bytes = std::fs::read(mounted.at(name)).unwrap();
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

#[test]
fn a_killed_mount_with_periodic_sync_goes_back_to_a_sync_point() {
    let test = "a_killed_mount_with_periodic_sync_goes_back_to_a_sync_point";
    if !require(test, &[Need::Fuse, Need::E2fsck]) {
        return;
    }
    let options = "sync=periodic,strict=*.db,commit=300";
    let mut mounted = Mounted::new(mkfs(&ImageSpec::with_size(16 << 20)), options);
    let dir = mounted.dir.to_str().unwrap().to_owned();
    record(&mounted, 1);
    done(&["ctl", "sync", &dir]);
    let before = flushes(&status_of(&mounted));
    for number in 2..50 {
        record(&mounted, number);
    }
    let status = status_of(&mounted);
    assert_eq!(flushes(&status) - before, 0, "fsync returned at once");
    assert_eq!(
        (&status["sync"], &status["moments"]["changed_since"]),
        (&"periodic".into(), &true.into())
    );
    let shown = done(&["status", &dir]);
    assert!(shown.contains("sync=periodic") && shown.contains("sync points"), "{shown}");
    mounted.kill_serving();
    mounted.bury();
    mounted.recoverable().unwrap();
    mounted.mount(options);
    assert_eq!((recorded(&mounted, "first"), recorded(&mounted, "second")), (1, 1));

    // A strict file takes everything before it along.
    record(&mounted, 50);
    std::fs::write(mounted.at("a.db"), "x").unwrap();
    std::fs::File::open(mounted.at("a.db")).unwrap().sync_all().unwrap();
    record(&mounted, 51);
    mounted.kill_serving();
    mounted.bury();
    mounted.mount(options);
    assert_eq!((recorded(&mounted, "first"), recorded(&mounted, "second")), (50, 50));
    assert_eq!(std::fs::read(mounted.at("a.db")).unwrap(), b"x");

    // `relaxed=off` makes every sync strict, as the policy `power` does.
    done(&["ctl", "set", &dir, "relaxed=off"]);
    record(&mounted, 52);
    mounted.kill_serving();
    mounted.bury();
    mounted.mount(options);
    assert_eq!((recorded(&mounted, "first"), recorded(&mounted, "second")), (52, 52));
    record(&mounted, 53);
    mounted.unmount_clean();
    mounted.mount("");
    assert_eq!((recorded(&mounted, "first"), recorded(&mounted, "second")), (53, 53));
    mounted.unmount_clean();
}

#[test]
fn a_shut_down_mount_is_a_crash_with_or_without_what_was_not_synced() {
    let test = "a_shut_down_mount_is_a_crash_with_or_without_what_was_not_synced";
    if !require(test, &[Need::Fuse, Need::E2fsck]) {
        return;
    }
    for (how, rest) in [(&[][..], "rest"), (&["--no-flush"], "")] {
        let mut mounted = Mounted::new(mkfs(&ImageSpec::with_size(16 << 20)), "commit=300");
        let dir = mounted.dir.to_str().unwrap().to_owned();
        record(&mounted, 1);
        std::fs::write(mounted.at("rest"), "rest").unwrap();
        done(&[&["ctl", "shutdown", &dir], how].concat());
        let eio = |err: std::io::Error| assert_eq!(err.raw_os_error(), Some(5), "{err}");
        eio(std::fs::write(mounted.at("new"), "x").unwrap_err());
        eio(std::fs::File::open(mounted.at("first")).unwrap_err());
        let said = refused(1, &["ctl", "shutdown", &dir]);
        assert!(said.contains("shut down"), "{said}");
        // The log stays to be replayed, which is what was asked for: nothing to complain of.
        done(&["umount", &dir]);
        mounted.bury();
        mounted.recoverable().unwrap();
        mounted.mount("");
        assert_eq!((recorded(&mounted, "first"), recorded(&mounted, "second")), (1, 1));
        assert_eq!(std::fs::read_to_string(mounted.at("rest")).unwrap_or_default(), rest);
        mounted.unmount_clean();
    }
}

#[test]
fn other_users_are_refused_and_hold_nobody_up() {
    let test = "other_users_are_refused_and_hold_nobody_up";
    if !require(test, &[Need::Fuse, Need::E2fsck, Need::Root]) {
        return;
    }
    use std::os::unix::process::CommandExt;
    let mut mounted = Mounted::new(mkfs(&ImageSpec::with_size(16 << 20)), "allow_other");
    let dir = mounted.dir.to_str().unwrap().to_owned();
    // A copy that another user can run.
    let place = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(place.path(), open).unwrap();
    let program = place.path().join("syncline");
    support::copy_program(&support::binary(), &program);
    let asked = |request: &[&str]| {
        let mut command = std::process::Command::new(&program);
        command.arg("ctl").args(request).uid(1234).gid(1234).output().unwrap()
    };
    let requests =
        [&["sync", &dir][..], &["clean", &dir], &["shutdown", &dir], &["set", &dir, "ram=4M"]];
    for request in requests {
        let answer = asked(request);
        let said = String::from_utf8_lossy(&answer.stderr).into_owned();
        assert_eq!(answer.status.code(), Some(1), "{request:?}: {said}");
        assert!(said.contains("user 1234 may not control it"), "{request:?}: {said}");
    }
    // Who may is not kept waiting by those. The best of three: the machine may be busy.
    let took = (0..3).map(|_| {
        let began = std::time::Instant::now();
        done(&["ctl", "sync", &dir]);
        began.elapsed()
    });
    let took = took.min().unwrap();
    assert!(took < std::time::Duration::from_secs(4), "{took:?}");
    mounted.unmount_clean();
}
