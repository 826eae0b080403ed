//! `syncline service`: mounts that another program makes for its user.
//!
//! The tests are that program, as `fuservicemount3` of libfuse. Where it is installed the last test
//! uses it.

use std::fs::{File, Permissions};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::mount::UnmountFlags;
use syncline_testkit::{
    ImageSpec, MountingProgram, Need, Random, TIMEOUT, UringOffer, e2fsck_clean, memory, mkfs,
    require, skip, unmounted,
};

use crate::support::{at, binary, copy_program, run, scratch, text};

/// The user of the service, who owns nothing.
const NOBODY: u32 = 61_234;
/// Socket directory and name of libfuse.
const SOCKET: &str = "/run/filesystems/syncline";

/// An image of root's alone, a directory for a mount, and a program that others may run.
struct Place {
    scratch: tempfile::TempDir,
    image: PathBuf,
    dir: PathBuf,
}

impl Place {
    fn new() -> Place {
        let scratch = scratch();
        std::fs::set_permissions(scratch.path(), Permissions::from_mode(0o755)).unwrap();
        let (image, dir) = (scratch.path().join("card.img"), scratch.path().join("dir"));
        std::fs::copy(mkfs(&ImageSpec::default()).path(), &image).unwrap();
        std::fs::set_permissions(&image, Permissions::from_mode(0o600)).unwrap();
        std::fs::create_dir(&dir).unwrap();
        copy_program(&binary(), &scratch.path().join("syncline"));
        Place { scratch, image, dir }
    }

    /// Starts the service as systemd does: its standard input is the connection.
    fn service(&self, connection: OwnedFd) -> Service {
        let mut command = Command::new(self.scratch.path().join("syncline"));
        command.uid(NOBODY).gid(NOBODY);
        self.service_by(command, connection)
    }

    fn service_by(&self, mut command: Command, connection: OwnedFd) -> Service {
        command.arg("service").current_dir("/");
        let child = command.stdin(connection).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        Service(child.unwrap())
    }

    /// A whole conversation: the service, the program, and the code of its goodbye.
    fn asked(&self, arguments: &[&str]) -> (Service, MountingProgram, u32) {
        let (mut program, theirs) = MountingProgram::new(arguments);
        let service = self.service(theirs);
        let code = program.converse().unwrap();
        (service, program, code)
    }

    fn mounted(&self, options: &str) -> (Service, MountingProgram) {
        let arguments = ["syncline", text(&self.image), text(&self.dir), "-o", options];
        let (service, program, code) = self.asked(&arguments);
        assert_eq!(code, 0, "{options}: {:?} {}", program.said, service.said());
        (service, program)
    }

    fn unmount(&self, service: Service) {
        let ran = run(&["umount".as_ref(), self.dir.as_os_str()]);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
        let (status, said) = service.end();
        assert!(status.success(), "{said}");
        e2fsck_clean(&self.image).unwrap();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        unmounted(&self.dir, UnmountFlags::DETACH);
    }
}

/// A service; it is ended when this is dropped.
struct Service(Child);

impl Service {
    /// Waits for its end: status and standard error.
    fn end(mut self) -> (ExitStatus, String) {
        let began = Instant::now();
        let status = loop {
            match self.0.try_wait().unwrap() {
                Some(status) => break status,
                None => assert!(began.elapsed() < TIMEOUT, "the service does not end"),
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let mut said = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (status, said)
    }

    /// Words of a service that does not mount.
    fn said(self) -> String {
        self.end().1
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn able(test: &str) -> bool {
    require(test, &[Need::Fuse, Need::E2fsck, Need::Root])
}

#[test]
fn a_service_mounts_what_its_user_opens() {
    if !able("a_service_mounts_what_its_user_opens") {
        return;
    }
    let place = Place::new();
    let (service, program) = place.mounted("noatime,commit=9");
    // The image, and the image for direct I/O; root's files, which the service may not open.
    assert!(program.opened.iter().all(|path| path == text(&place.image)), "{:?}", program.opened);
    std::fs::write(place.dir.join("file"), "kept").unwrap();
    File::open(place.dir.join("file")).unwrap().sync_all().unwrap();
    let process = format!("/proc/{}", service.0.id());
    let environment = std::fs::metadata(format!("{process}/environ")).unwrap();
    assert_eq!(environment.uid(), 0, "not dumpable");
    let status = std::fs::read_to_string(format!("{process}/status")).unwrap();
    for line in [format!("Uid:\t{NOBODY}\t"), "Seccomp:\t2".into(), "CapEff:\t0000000000".into()] {
        assert!(status.contains(&line), "{line}: {status}");
    }
    let json = run(&["status".as_ref(), "--json".as_ref(), place.dir.as_os_str()]).text();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["sandbox"]["missing"], serde_json::json!([]), "{json}");
    assert_eq!(json["image"], text(&place.image));
    // Of an image that is in use, by its lock.
    let (other, refused, code) = place.asked(&["syncline", text(&place.image), text(&place.dir)]);
    assert_eq!(code, 1);
    assert!(refused.said.unwrap().contains("another program has it open"), "{}", other.said());
    drop(program);
    place.unmount(service);
    assert_eq!(run(&["cat", &at(&place.image, "/file")]).text(), "kept");
}

/// Neither of the conversation nor of the work on the mount.
#[test]
fn no_call_of_a_service_is_refused() {
    let test = "no_call_of_a_service_is_refused";
    if !crate::sandbox::traceable(test) {
        return;
    }
    traced(&["discard", "sync=periodic,log=packed", "writeback_cache,threads=3"], "/dev/fuse");
    if let Some(_offer) = UringOffer::on(test) {
        traced(&["noatime"], "io_uring");
    }
}

/// Mounts with each of the options, and looks for calls that are refused.
fn traced(options: &[&str], through: &str) {
    for options in options {
        let place = Place::new();
        let logs = tempfile::tempdir().unwrap();
        std::fs::set_permissions(logs.path(), Permissions::from_mode(0o777)).unwrap();
        let mut command = Command::new("strace");
        command.args(["-ff", "-qq", "-o"]).arg(logs.path().join("calls"));
        command.arg(place.scratch.path().join("syncline"));
        // The kernel's offer is of the whole machine, and other tests change it.
        let uring = if through == "io_uring" { "uring=auto" } else { "uring=off" };
        let (image, dir) = (text(&place.image), text(&place.dir));
        let arguments = ["syncline", image, dir, "-o", options, "-o", uring];
        let (mut program, theirs) = MountingProgram::new(&arguments);
        let service = place.service_by(command, theirs);
        assert_eq!(program.converse().unwrap(), 0, "{options}: {:?}", program.said);
        let json = run(&["status".as_ref(), "--json".as_ref(), place.dir.as_os_str()]).text();
        assert!(json.contains(&format!("\"transport\":\"{through}\"")), "{json}");
        crate::sandbox::worked_in(&place.dir);
        place.unmount(service);
        for entry in std::fs::read_dir(logs.path()).unwrap() {
            let log = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            assert_eq!(crate::sandbox::refused(&log), [""; 0], "{options}");
        }
    }
}

/// A log that a crash left is replayed on the image by a mount with `ro`, as by other mounts.
#[test]
fn a_service_reads_a_card_after_a_crash() {
    if !able("a_service_reads_a_card_after_a_crash") {
        return;
    }
    let place = Place::new();
    let (service, program) = place.mounted("sync=eager");
    std::fs::write(place.dir.join("file"), "synced").unwrap();
    File::open(place.dir.join("file")).unwrap().sync_all().unwrap();
    drop((service, program));
    assert!(std::fs::read_dir(&place.dir).is_err(), "a mount without a process");
    assert!(unmounted(&place.dir, UnmountFlags::DETACH));
    // Its journal has the file, and only that.
    let (service, program) = place.mounted("ro");
    assert_eq!(std::fs::read_to_string(place.dir.join("file")).unwrap(), "synced");
    let refused = std::fs::write(place.dir.join("other"), "").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    assert!(!program.opened.is_empty());
    place.unmount(service);
    // An end that nobody asked for at the mount: the image is clean, and programs get errors.
    let (service, program) = place.mounted("rw");
    // It has a copy of the FUSE device, as long as it runs.
    drop(program);
    std::fs::write(place.dir.join("last"), "unsynced").unwrap();
    let pid = rustix::process::Pid::from_child(&service.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let (status, said) = service.end();
    assert!(status.success(), "{said}");
    e2fsck_clean(&place.image).unwrap();
    assert_eq!(run(&["cat", &at(&place.image, "/last")]).text(), "unsynced");
    assert!(std::fs::read_dir(&place.dir).is_err());
}

#[test]
fn what_a_service_cannot_do_is_refused_by_name() {
    let test = "what_a_service_cannot_do_is_refused_by_name";
    if !able(test) {
        return;
    }
    // A mount that is refused is no error of io_uring.
    let _offer = UringOffer::on(test);
    let place = Place::new();
    let (image, dir) = (text(&place.image), text(&place.dir));
    let damaged = place.scratch.path().join("damaged.img");
    std::fs::write(&damaged, vec![7; 1 << 20]).unwrap();
    let damaged = text(&damaged);
    let absent = place.scratch.path().join("absent");
    for (arguments, code, sentence) in [
        (&[image, dir, "-o", "noatmie"][..], 2, "`noatime`"),
        (&[image, dir, "-otrace=/tmp/t"], 2, "`trace`: a service opens no files"),
        (&[image, dir, "-o", "buffer_log=/tmp/l"], 2, "`buffer_log`: a service"),
        (&[image, dir, "-o", "relaxed=*.db"], 2, "`power=on`: a service cannot ask"),
        (&[image, dir, "-o", "sandbox=off"], 2, "`sandbox=off`: a service is contained"),
        (&[image, dir, "-o", "ro,backing=/absent"], 1, "/absent: no such file"),
        (&[image], 2, "two paths are needed"),
        (&[image, dir, "--keeper"], 2, "two paths are needed"),
        (&[damaged, dir], 3, "no ext4 superblock"),
        (&[text(&absent), dir], 1, "check the path"),
        (&[dir, dir, "-o", "ro"], 1, "give an image file or a block device"),
        (&["/dev/null", dir], 1, "give an image file or a block device"),
        (&[image, text(&absent)], 1, "the mount was refused"),
    ] {
        let arguments = [&["syncline"], arguments].concat();
        let (service, program, found) = place.asked(&arguments);
        let printed = program.said.unwrap_or_default();
        let (status, said) = service.end();
        assert_eq!(found, code, "{arguments:?}: {said}");
        assert_eq!(status.code(), Some(code as i32), "{arguments:?}: {said}");
        assert!(printed.contains(sentence) && said.contains(sentence), "{sentence}: {said}");
        assert!(said.contains("; ") && said.lines().count() == 1, "{said}");
        assert!(printed.contains("Invalid argument"), "what cannot be opened: {printed}");
    }
    e2fsck_clean(&place.image).unwrap();
}

/// The mounting program ends, or is killed, at any time of the conversation.
#[test]
fn a_program_that_goes_away_leaves_the_image_as_it_was() {
    if !able("a_program_that_goes_away_leaves_the_image_as_it_was") {
        return;
    }
    let place = Place::new();
    let before = std::fs::read(&place.image).unwrap();
    for steps in 0..4 {
        let (program, theirs) =
            MountingProgram::new(&["syncline", text(&place.image), text(&place.dir)]);
        let service = place.service(theirs);
        if steps == 1 {
            program.send(b"SAFT\0\x01\0\x01\0\0\0\0", None).unwrap();
        }
        if steps > 1 {
            program.greet().unwrap();
        }
        if steps > 2 {
            assert!(program.receive().unwrap().unwrap().starts_with(b"OPEN"));
        }
        drop(program);
        let (status, said) = service.end();
        assert_eq!(status.code(), Some(1), "{steps}: {said}");
        assert!(said.contains("; ") && said.lines().count() == 1, "{said}");
        assert!(std::fs::read(&place.image).unwrap() == before, "{steps}");
    }
}

/// Whatever it sends: the service ends with a sentence, and not by a signal.
#[test]
fn a_hostile_program_ends_its_own_service_only() {
    if !able("a_hostile_program_ends_its_own_service_only") {
        return;
    }
    let place = Place::new();
    let good = ["syncline", text(&place.image), text(&place.dir)];
    let hello = b"SAFT\0\x01\0\x01\0\0\0\0";
    let (socket, _end) = std::os::unix::net::UnixStream::pair().unwrap();
    let dir = File::open("/").unwrap();
    let many = memory(&[&b"ARGS\xff\xff\xff\xff"[..], &[0xff; 4096]].concat()).unwrap();
    let endless = memory(&[]).unwrap();
    endless.set_len(1 << 40).unwrap();
    for (name, hello, argv, file) in [
        ("rubbish", &b"rubbish"[..], &b""[..], None),
        ("an empty greeting", b"SAFT", b"", None),
        ("a long greeting", &[b'S'; 60_000], b"", None),
        ("another version", b"SAFT\0\x02\0\x03\0\0\0\0", b"", None),
        ("no descriptor", hello, b"FILE\0\0\0\0argv\0", None),
        ("another name", hello, b"FILE\0\0\0\0fusedev\0", Some(many.as_fd())),
        ("an answer that is too long", hello, &[b'F'; 60_000], Some(many.as_fd())),
        ("lengths of any size", hello, b"FILE\0\0\0\0argv\0", Some(many.as_fd())),
        ("a file without end", hello, b"FILE\0\0\0\0argv\0", Some(endless.as_fd())),
        ("a socket", hello, b"FILE\0\0\0\0argv\0", Some(socket.as_fd())),
        ("a directory", hello, b"FILE\0\0\0\0argv\0", Some(dir.as_fd())),
        ("an errno of any size", hello, b"FILE\xff\xff\xff\xffargv\0", Some(many.as_fd())),
    ] {
        let (program, theirs) = MountingProgram::new(&good);
        let service = place.service(theirs);
        // It may have ended already.
        let _ = program.send(hello, None);
        let _ = program.send(argv, file);
        let _ = program.send(b"FILE\0\0\0\0fusedev\0", file);
        let (status, said) = service.end();
        assert_eq!(status.code(), Some(1), "{name}: {said}");
        assert!(said.contains("a service of mounts: "), "{name}: {said}");
    }
    // Answers to requests, after a good greeting.
    let mut random = Random::new(42);
    for round in 0..20 {
        let (program, theirs) = MountingProgram::new(&good);
        let service = place.service(theirs);
        program.greet().unwrap();
        for _ in 0..8 {
            let mut packet: Vec<u8> = (0..random.index(64)).map(|_| random.bits() as u8).collect();
            if random.index(2) == 0 {
                packet = [&b"FILE\0\0\0\0"[..], text(&place.image).as_bytes(), &[0]].concat();
            }
            let file = [None, Some(dir.as_fd()), Some(endless.as_fd())][random.index(3)];
            let _ = program.send(&packet, file);
        }
        drop(program);
        let (status, said) = service.end();
        assert!(matches!(status.code(), Some(1..=4)), "round {round}: {status} {said}");
    }
    e2fsck_clean(&place.image).unwrap();
}

/// The program of libfuse, of any owner.
fn fuservicemount() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/local/sbin", "/usr/sbin"].map(PathBuf::from);
    let found = std::env::split_paths(&path).chain(sbin).map(|dir| dir.join("fuservicemount3"));
    found.into_iter().find(|file| file.is_file())
}

/// The socket of `syncline.socket`, for one test.
struct Listening(OwnedFd);

impl Listening {
    fn new() -> Listening {
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
        std::fs::create_dir_all(Path::new(SOCKET).parent().unwrap()).unwrap();
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let socket = rustix::net::socket_with(kind.0, kind.1, kind.2, None).unwrap();
        rustix::net::bind(&socket, &SocketAddrUnix::new(SOCKET).unwrap()).unwrap();
        rustix::net::listen(&socket, 8).unwrap();
        std::fs::set_permissions(SOCKET, Permissions::from_mode(0o222)).unwrap();
        Listening(socket)
    }

    fn accept(&self) -> OwnedFd {
        use rustix::net::SocketFlags;
        rustix::net::accept_with(&self.0, SocketFlags::CLOEXEC).unwrap()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(SOCKET);
    }
}

#[test]
fn fuservicemount_mounts_for_an_ordinary_user() {
    let test = "fuservicemount_mounts_for_an_ordinary_user";
    if !able(test) {
        return;
    }
    let Some(program) = fuservicemount() else {
        return skip(test, "needs fuservicemount3 of libfuse 3.19");
    };
    if Path::new(SOCKET).exists() {
        return skip(test, "a service of this machine has the socket");
    }
    // Without set-user-ID it mounts for root only.
    let has_right = std::fs::metadata(&program).unwrap().mode() & 0o4000 != 0;
    let user = if has_right { 65_534 } else { 0 };
    let place = Place::new();
    for path in [&place.image, &place.dir] {
        std::os::unix::fs::chown(path, Some(user), Some(user)).unwrap();
    }
    let as_user = |program: &Path, words: &[&str]| {
        let mut command = Command::new(program);
        command.args(words).uid(user).gid(user).current_dir(place.scratch.path());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let listening = Listening::new();
    assert!(as_user(&program, &["-t", "syncline", "--check"]).status().unwrap().success());
    let owner = format!("uid={user},gid={user}");
    let words = |options| ["card.img", "dir", "-t", "syncline", "-o", options];
    // A relative path, which only the user's program can open.
    let mounting = as_user(&program, &words(&owner)).spawn().unwrap();
    let service = place.service(listening.accept());
    let ran = mounting.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.success(), "{said}");
    let work = "echo hello >dir/file && sync dir/file && cat dir/file";
    let ran = as_user("/bin/sh".as_ref(), &["-c", work]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "hello\n", "{ran:?}");
    let syncline = place.scratch.path().join("syncline");
    let ran = as_user(&syncline, &["umount", "dir"]).output().unwrap();
    assert_eq!((ran.status.code(), &ran.stderr[..]), (Some(0), &b""[..]));
    assert!(service.end().0.success());
    e2fsck_clean(&place.image).unwrap();
    assert_eq!(run(&["cat", &at(&place.image, "/file")]).text(), "hello\n");
    for (options, code, sentence) in
        [("noatmie", 2, "the nearest is `noatime`"), ("sandbox=off", 2, "a service is contained")]
    {
        let mounting = as_user(&program, &words(options)).spawn().unwrap();
        let service = place.service(listening.accept());
        let ran = mounting.wait_with_output().unwrap();
        assert_eq!(ran.status.code(), Some(code), "{ran:?}");
        assert!(String::from_utf8_lossy(&ran.stderr).contains(sentence), "{ran:?}");
        assert_eq!(service.end().0.code(), Some(code));
    }
}
