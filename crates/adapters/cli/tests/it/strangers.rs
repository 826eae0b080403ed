//! Other users of the machine: what they may read, they cannot hold up, deceive or take over.

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::mounted::Mounted;
use crate::support::{at, binary, copy_program, run};
use syncline_testkit::{ImageSpec, Need, e2fsck_clean, mkfs, require};

const STRANGER: u32 = 4321;
/// A user with a name, which fusermount3 asks for.
const NOBODY: u32 = 65534;

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A program of the stranger; it is ended when this is dropped.
struct Stranger(Child);

impl Stranger {
    /// Starts it, and waits for its first line.
    fn start(program: &str, arguments: &[&std::ffi::OsStr]) -> Stranger {
        let mut command = Command::new(program);
        command.args(arguments).uid(STRANGER).gid(STRANGER);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Stranger(child)
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Locks that need no more than permission to read.
const LOCKS: [&str; 3] = [
    "exec 9< \"$0\"; flock -s 9; echo ready; read line",
    "exec 9< \"$0\"; flock -x 9; echo ready; read line",
    "exec perl -e 'use Fcntl; $| = 1; open F, \"<\", $ARGV[0]; \
     $l = pack(\"s s x4 q q l x4\", F_RDLCK, 0, 0, 0, 0); fcntl(F, F_SETLK, $l) or die; \
     print \"ready\\n\"; <STDIN>' \"$0\"",
];

#[test]
fn a_readers_lock_holds_up_neither_mount_nor_unmount() {
    let test = "a_readers_lock_holds_up_neither_mount_nor_unmount";
    if !require(test, &[Need::Fuse, Need::E2fsck, Need::Root]) {
        return;
    }
    for script in LOCKS {
        let image = mkfs(&ImageSpec::default());
        mode(image.path(), 0o644);
        let path = image.path().to_owned();
        let stranger = Stranger::start("sh", &["-c".as_ref(), script.as_ref(), path.as_ref()]);
        let mut mounted = Mounted::new(image, "");
        std::fs::write(mounted.at("file"), "kept").unwrap();
        // One writer at a time all the same, and no reader beside it.
        for arguments in [["mkdir", &at(&path, "/new")], ["ls", &at(&path, "/")]] {
            let second = run(&arguments);
            assert_eq!(second.code, 1, "{script}, {arguments:?}: {}", second.text());
            assert!(second.err.contains("another program has it open"), "{}", second.err);
        }
        mounted.unmount_clean();
        let ran = run(&["cat", &at(&path, "/file")]);
        assert_eq!((ran.code, ran.text().as_str()), (0, "kept"), "{script}: {}", ran.err);
        let ran = run(&["mkdir", &at(&path, "/new")]);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{script}");
        drop(stranger);
        e2fsck_clean(&path).unwrap();
    }
}

/// The owner reads: the writer is refused, and so it is while root does.
#[test]
fn a_reader_of_the_owner_is_respected() {
    if !require("a_reader_of_the_owner_is_respected", &[Need::E2fsck]) {
        return;
    }
    let image = mkfs(&ImageSpec::default());
    let reader =
        syncline_device::FileOptions { read_only: true, ..syncline_device::FileOptions::default() };
    let reader = syncline_device::FileDevice::open(image.path(), reader).unwrap();
    let ran = run(&["mkdir", &at(image.path(), "/new")]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("another program has it open"), "{}", ran.err);
    drop(reader);
    assert_eq!(run(&["mkdir", &at(image.path(), "/new")]).code, 0);
}

/// A user mounts an image and puts a pipe in its place: opening that would wait for ever.
#[test]
fn the_source_of_a_users_mount_is_not_opened_by_root() {
    let test = "the_source_of_a_users_mount_is_not_opened_by_root";
    if !require(test, &[Need::Fuse, Need::E2fsck, Need::Root]) {
        return;
    }
    if !crate::mount::users_may() {
        return syncline_testkit::skip(test, crate::mount::USERS_MAY_NOT);
    }
    let place = tempfile::tempdir().unwrap();
    mode(place.path(), 0o777);
    let (image, dir) = (place.path().join("card.img"), place.path().join("dir"));
    std::fs::copy(mkfs(&ImageSpec::default()).path(), &image).unwrap();
    std::fs::create_dir(&dir).unwrap();
    for path in [&image, &dir] {
        std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let program = place.path().join("syncline");
    copy_program(&binary(), &program);
    let mut mount = Command::new(&program);
    mount.args(["mount", "-o", "uid=65534,gid=65534"]).args([&image, &dir]);
    let mounted = mount.uid(NOBODY).gid(NOBODY).stdout(Stdio::null()).status().unwrap();
    assert!(mounted.success());
    std::fs::rename(&image, place.path().join("aside")).unwrap();
    let made = Command::new("mkfifo").arg(&image).status().unwrap();
    assert!(made.success());
    let ran = run(&["umount".as_ref(), dir.as_os_str()]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
}

#[test]
fn only_the_serving_user_and_root_connect_to_nfs_on_this_machine() {
    let test = "only_the_serving_user_and_root_connect_to_nfs_on_this_machine";
    if !require(test, &[Need::E2fsck, Need::Root]) {
        return;
    }
    // A NULL call of MOUNT: fragment header, xid, CALL, RPC version 2, program, version, procedure,
    // no credentials, no verifier.
    let call = "\\x80\\0\\0\\x28\\0\\0\\0\\1\\0\\0\\0\\0\\0\\0\\0\\2\\0\\1\\x86\\xa5\\0\\0\\0\\3\
                \\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0";
    for (options, answered) in [(&[][..], false), (&["--allow-local-users"][..], true)] {
        let image = mkfs(&ImageSpec::default());
        let mut command = binary();
        command.args(["serve", "--nfs", "127.0.0.1:0"]).args(options).arg(image.path());
        let mut server = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let port = first.split("127.0.0.1:").nth(1).unwrap().split(' ').next().unwrap().to_owned();
        let script = format!(
            "exec 3<>/dev/tcp/127.0.0.1/{port} || exit 7; printf '{call}' >&3; \
             head -c 4 <&3 | wc -c"
        );
        let ask = |user: u32| {
            let mut command = Command::new("bash");
            let ran = command.args(["-c", &script]).uid(user).gid(user).output().unwrap();
            String::from_utf8_lossy(&ran.stdout).trim() == "4"
        };
        assert!(ask(0), "{options:?}: who serves");
        assert_eq!(ask(STRANGER), answered, "{options:?}");
        let pid = rustix::process::Pid::from_child(&server);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(server.wait().unwrap().success());
    }
}

#[test]
fn status_names_files_to_the_serving_user_only() {
    let test = "status_names_files_to_the_serving_user_only";
    if !require(test, &[Need::Fuse, Need::E2fsck, Need::Root]) {
        return;
    }
    let mut mounted = Mounted::new(mkfs(&ImageSpec::default()), "allow_other");
    std::fs::create_dir(mounted.at("private")).unwrap();
    mode(&mounted.at("private"), 0o700);
    std::fs::write(mounted.at("private/secret-name"), vec![1; 100_000]).unwrap();
    mode(&mounted.dir, 0o755);
    let place = tempfile::tempdir().unwrap();
    mode(place.path(), 0o755);
    let program = place.path().join("syncline");
    copy_program(&binary(), &program);
    let status = |user: u32| {
        let mut command = Command::new(&program);
        command.args(["status", "--json"]).arg(&mounted.dir).uid(user).gid(user);
        let ran = command.output().unwrap();
        String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr)
    };
    let (own, strangers) = (status(0), status(STRANGER));
    assert!(own.contains("secret-name"), "{own}");
    assert!(strangers.contains("uptime_s") && !strangers.contains("secret-name"), "{strangers}");
    mounted.unmount_clean();
}

/// Somebody else has made the directory in which a user's sockets are.
#[test]
fn a_runtime_directory_of_somebody_else_is_named() {
    if !require("a_runtime_directory_of_somebody_else_is_named", &[Need::Root]) {
        return;
    }
    let taken = Path::new("/tmp/syncline-4322");
    if Path::new("/run/user/4322").exists() || taken.exists() {
        return syncline_testkit::skip("a_runtime_directory_of_somebody_else_is_named", "in use");
    }
    std::fs::create_dir(taken).unwrap();
    std::os::unix::fs::chown(taken, Some(STRANGER), Some(STRANGER)).unwrap();
    let refused = syncline_device::runtime_dir(4322).unwrap_err().to_string();
    std::fs::remove_dir(taken).unwrap();
    assert!(refused.contains("is not a directory of user 4322 alone"), "{refused}");
}
