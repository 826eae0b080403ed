//! A serving process that is taken over can do nothing but its work, and one that has a bug ends
//! (`src/bin/taken_over.rs`).

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use syncline_testkit::{ImageSpec, MountingProgram, Need, UringOffer, e2fsck_clean, mkfs, require};

/// The user of the tests, and one who has a name and nothing else.
const USERS: [u32; 2] = [0, 65_534];

const EPERM: &str = "1";
/// ENOSYS of clone3: the C library takes clone then, whose flags are seen.
const ENOSYS: &str = "38";
/// EACCES of Landlock.
const EACCES: &str = "13";
/// EFBIG of a limit.
const EFBIG: &str = "27";

/// Attempts whose refusal is not the filter's EPERM.
const OTHERS: [(&str, &str); 2] = [("clone3", ENOSYS), ("write behind the image", EFBIG)];

/// Attempts that Landlock refuses to a process that may open a file.
const OPENS: [&str; 5] =
    ["open a file", "make a file", "open a directory", "open a device", "open memory"];

/// An image, a directory and a copy of the program of a user.
struct Place {
    _scratch: tempfile::TempDir,
    image: PathBuf,
    dir: PathBuf,
    program: PathBuf,
}

impl Place {
    fn of(user: u32) -> Place {
        let scratch = tempfile::tempdir().unwrap();
        let mode = Permissions::from_mode(0o777);
        std::fs::set_permissions(scratch.path(), mode).unwrap();
        let (image, dir) = (scratch.path().join("image"), scratch.path().join("dir"));
        std::fs::copy(mkfs(&ImageSpec::default()).path(), &image).unwrap();
        std::fs::create_dir(&dir).unwrap();
        let program = scratch.path().join("taken-over");
        // By a process: children of other tests would have our copy open to write (ETXTBSY).
        let mut copy = Command::new("cp");
        let copied = copy.arg(env!("CARGO_BIN_EXE_taken_over")).arg(&program).status();
        assert!(copied.unwrap().success());
        for path in [&image, &dir] {
            std::os::unix::fs::chown(path, Some(user), Some(user)).unwrap();
        }
        Place { _scratch: scratch, image, dir, program }
    }
}

fn served_by(user: u32, options: &str, work: impl FnOnce(&Path)) {
    let Place { _scratch, image, dir, program } = Place::of(user);
    let mut mount = Command::new(&program);
    mount.args(["mount", "-o", options]).args([&image, &dir]).uid(user).gid(user);
    assert!(mount.status().unwrap().success());
    work(&dir);
    let unmounted = Command::new(&program).arg("umount").arg(&dir).status().unwrap();
    assert!(unmounted.success());
    e2fsck_clean(&image).unwrap();
}

/// A thread that panics takes the process with it: no program waits for ever, nothing of what the
/// thread was at is written, and what was synced is there after recovery.
#[test]
fn a_panic_ends_the_process() {
    if !require("a_panic_ends_the_process", &[Need::Fuse, Need::E2fsck, Need::Root]) {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let image = mkfs(&ImageSpec::default());
    let run = |words: &[&str], path: &Path| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_taken_over"));
        program.env("TAKEN_OVER_PANIC", "1").args(words).arg(path);
        program
    };
    assert!(run(&["mount"], image.path()).arg(place.path()).status().unwrap().success());
    let mut file = std::fs::File::create(place.path().join("file")).unwrap();
    file.write_all(b"synced").unwrap();
    file.sync_all().unwrap();
    drop(file);
    assert!(!run(&["attack"], place.path()).output().unwrap().status.success());
    let gone = loop {
        // Answers come until the last file of the process is closed.
        if let Err(gone) = std::fs::read_dir(place.path()) {
            break gone;
        }
        std::thread::yield_now();
    };
    assert_eq!(gone.raw_os_error(), Some(libc::ENOTCONN));
    let unmounted = run(&["umount"], place.path()).output().unwrap();
    assert!(String::from_utf8_lossy(&unmounted.stderr).contains("run `syncline recover`"));
    assert!(run(&["recover"], image.path()).status().unwrap().success());
    e2fsck_clean(image.path()).unwrap();
    let file = format!("{}:/file", image.path().display());
    assert_eq!(run(&["cat"], Path::new(&file)).output().unwrap().stdout, b"synced");
}

fn attack(dir: &Path) -> Vec<(String, String)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_taken_over"));
    attempts(command.arg("attack").arg(dir).output().unwrap().stdout)
}

fn attempts(said: Vec<u8>) -> Vec<(String, String)> {
    let said = String::from_utf8(said).unwrap();
    let attempts = said.lines().map(|line| line.split_once(": ").unwrap());
    attempts.map(|(name, outcome)| (name.to_owned(), outcome.to_owned())).collect()
}

fn refused_all(attempts: &[(String, String)], of_opens: &str, by: &str) {
    assert!(attempts.len() > 60, "{attempts:?}");
    let others = OTHERS.into_iter().chain(OPENS.map(|name| (name, of_opens)));
    let others: BTreeMap<&str, &str> = others.collect();
    for (name, outcome) in attempts {
        let expected = others.get(name.as_str()).copied().unwrap_or(EPERM);
        assert_eq!(outcome, expected, "{by}: {name}");
    }
}

#[test]
fn a_process_that_is_taken_over_can_do_nothing_else() {
    let name = "a_process_that_is_taken_over_can_do_nothing_else";
    if !require(name, &[Need::Fuse, Need::E2fsck, Need::Root]) {
        return;
    }
    attacked(name);
    if let Some(_offer) = UringOffer::on(name) {
        attacked(name);
    }
}

/// Through the transport that a mount has now.
fn attacked(name: &str) {
    for user in USERS {
        let mode = std::fs::metadata("/dev/fuse").unwrap().permissions().mode();
        if user != 0 && mode & 0o006 != 0o006 {
            syncline_testkit::skip(name, "as another user: needs a /dev/fuse that users may open");
            continue;
        }
        served_by(user, &format!("sandbox=strict,uid={user}"), |dir| {
            refused_all(&attack(dir), EACCES, &format!("user {user}"));
            if user == 0 {
                std::fs::write(dir.join("file"), "still served").unwrap();
            }
        });
    }
}

/// The same for a server of a write buffer, in each way of serving that a kernel without ublk has.
#[test]
fn a_server_of_a_write_buffer_that_is_taken_over_can_do_nothing_else() {
    let name = "a_server_of_a_write_buffer_that_is_taken_over_can_do_nothing_else";
    if !require(name, &[Need::Fuse, Need::Root]) {
        return;
    }
    for way in
        [&["--as", "fuse"][..], &["--as", "nbd"], &["--as", "nbd", "--listen", "127.0.0.1:0"]]
    {
        let place = tempfile::tempdir().unwrap();
        let (image, log) = (place.path().join("image"), place.path().join("log"));
        std::fs::copy(mkfs(&ImageSpec::default()).path(), &image).unwrap();
        let dir = place.path().join("dir");
        std::fs::create_dir(&dir).unwrap();
        let served = |words: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_taken_over"));
            command.arg("buffer").args(words);
            command
        };
        let mut attach = served(&["attach", "--create", "--log-size", "2M"]);
        attach.args(way).arg("--log").arg(&log).args([&image, &dir]);
        assert!(attach.output().unwrap().status.success(), "{way:?}");
        refused_all(&attack(&dir), EACCES, &format!("{way:?}"));
        let detached = served(&["detach"]).arg(&dir).output().unwrap();
        assert!(detached.status.success(), "{way:?}: {detached:?}");
        assert!(std::fs::read_dir(&dir).unwrap().next().is_none(), "nothing stays");
        e2fsck_clean(&image).unwrap();
    }
}

/// The same for the helper of a library (`isolate`), which may open no file at all. It serves on.
#[test]
fn a_helper_of_a_library_that_is_taken_over_can_do_nothing_else() {
    let name = "a_helper_of_a_library_that_is_taken_over_can_do_nothing_else";
    if !require(name, &[Need::E2fsck, Need::Root]) {
        return;
    }
    for user in USERS {
        let place = Place::of(user);
        let mut library = Command::new(&place.program);
        library.arg("library").arg(&place.image).uid(user).gid(user);
        let ran = library.output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        refused_all(&attempts(ran.stderr), EPERM, &format!("user {user}"));
        e2fsck_clean(&place.image).unwrap();
    }
}

/// The same for a service of mounts, which opens no file at all, not even /dev/fuse.
#[test]
fn a_service_that_is_taken_over_can_do_nothing_else() {
    let name = "a_service_that_is_taken_over_can_do_nothing_else";
    if !require(name, &[Need::Fuse, Need::E2fsck, Need::Root]) {
        return;
    }
    for user in USERS {
        let place = Place::of(user);
        let words = [&place.image, &place.dir].map(|path| path.to_str().unwrap());
        let arguments = ["syncline", words[0], words[1], "-o", "sandbox=strict"];
        let (mut mounting, connection) = MountingProgram::new(&arguments);
        let mut service = Command::new(&place.program);
        service.arg("service").uid(user).gid(user).stdin(connection);
        let service = service.stderr(std::process::Stdio::piped()).spawn().unwrap();
        let code = mounting.converse().unwrap();
        assert_eq!(code, 0, "{:?}", mounting.said);
        std::fs::write(place.dir.join("file"), "still served").unwrap();
        let unmounted = Command::new(&place.program).arg("umount").arg(&place.dir).status();
        assert!(unmounted.unwrap().success());
        let ran = service.wait_with_output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        refused_all(&attempts(ran.stderr), EPERM, &format!("user {user}"));
        e2fsck_clean(&place.image).unwrap();
    }
}

/// The attempts mean something: without a sandbox they are done.
#[test]
fn without_a_sandbox_the_attempts_are_done() {
    if !require("without_a_sandbox_the_attempts_are_done", &[Need::Fuse, Need::Root]) {
        return;
    }
    served_by(0, "sandbox=off", |dir| {
        let attempts = attack(dir);
        let done = |wanted: &str| {
            attempts.iter().any(|(name, outcome)| name == wanted && outcome == "done")
        };
        for name in ["open a file", "open a directory", "socket", "fork", "memfd_create"] {
            assert!(done(name), "{name}: {attempts:?}");
        }
    });
}
