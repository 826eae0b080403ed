//! The same commands on a mount and on the kernel's ext4: what they print must agree.
//!
//! Each case is a shell script that runs in a fresh directory of either. Its output, with the text
//! of errors, and its exit code are compared; so a case needs no expectation, and cannot have a
//! wrong one. `U` runs a command as a user with one group more, `O` as another user.
//!
//! Beside it the suite of `syncline-posix`, whose assertions have expectations: the kernel's answer
//! should be the wanted one, ours must be the kernel's.

use std::path::Path;
use std::process::Command;

use syncline_testkit::posix::conform::{self, Check};
use syncline_testkit::{ImageSpec, KernelMount, Need, mkfs, require};

use crate::mounted::{Mounted, scratch};

/// Defined before every case: short names for what most of them use.
const PRELUDE: &str = r#"
umask 022
U() { setpriv --reuid=1000 --regid=1000 --groups=1000,1001 -- "$@"; }
O() { setpriv --reuid=1002 --regid=1002 --clear-groups -- "$@"; }
S() { stat -c '%n %F %a %h %u %g %s' -- "$@"; }
"#;

const CASES: &[&str] = &[
    // Access times that a program asks to be left alone.
    "head -c 8192 /dev/zero > f; touch -a -d @1 f; \
     dd if=f of=/dev/null iflag=direct,noatime bs=4096 status=none; stat -c %X f; \
     dd if=f of=/dev/null iflag=direct bs=4096 status=none; test $(stat -c %X f) = 1; echo $?",
    // Names.
    "mkdir d; mkdir d; rmdir d; rmdir d; rmdir .; mkdir a/b",
    "mkdir d; touch d/f; rmdir d; rm d/f; rmdir d/; S d",
    "touch f; rmdir f; mkdir f; cat f/; cat f/x; mkdir f/x",
    "mkdir d; unlink d; cat d; echo x > d; ln d e",
    "touch $(printf 'a%.0s' $(seq 255)); touch $(printf 'a%.0s' $(seq 256)); ls | wc",
    "touch f; ln f g; S f g; ln f g; rm f; S g; ln -s g h; ln -P h i; S h i; cat i",
    "ln -s loop loop; cat loop; ln -s '' e; ln -s $(printf 'a%.0s' $(seq 4096)) l; S loop",
    "ln -s $(printf 'a%.0s' $(seq 4095)) l; readlink l | wc -c; S l",
    "mkfifo p; mknod c c 1 3; mknod b b 259 70000; stat -c '%F %a %t %T' p c b",
    "mkdir d; mknod d p; touch f; mkfifo f; S d f",
    // Renames.
    "mkdir a b; touch f; mv -T f a; mv -T a f; mv -T a b; ls; touch b/x; mkdir a; mv -T a b",
    "mkdir -p a/b; mv a a/b/c; mv a/b b; S a b; mv -T b a; ls",
    "touch f; ln f g; mv -T f g; ls; echo 1 > a; echo 2 > b; mv -T a b; cat b; ls",
    "mkdir d e; touch d/f; mv d/f e/; S d e e/f; mv d e/; S d e; ls e",
    // Permissions.
    "touch f; chmod 600 f; U cat f; U chmod 777 f; U touch f; U chown 1000 f; chmod 666 f; \
     U touch f",
    "touch f; chmod 666 f; U touch -d @1 f; U cat f; mkdir d; U touch d/x; chmod 333 d; U ls d",
    "mkdir t; chmod 1777 t; U touch t/a; O rm -f t/a; O mv t/a t/b; U mv t/a t/c; O rm -rf t/c; \
     ls t",
    "mkdir d; chmod 777 d; U touch d/f; S d/f; U mkdir d/e; S d/e; U ln -s x d/l; S d/l",
    "echo x > f; chmod 6777 f; U sh -c 'echo y >> f'; S f; chmod 6777 f; echo z >> f; S f",
    "echo x > f; chmod 6777 f; U sh -c ': > f'; S f; chmod 6777 f; : > f; S f",
    "echo x > f; chmod 6777 f; U truncate -s 9 f; S f; chmod 6777 f; truncate -s 5 f; S f",
    "touch f; chown 1000:1000 f; chmod 6755 f; U chgrp 1001 f; S f; chmod 6755 f; chown 5 f; S f",
    "touch f; chown 1000:1000 f; U chgrp 1005 f; U chown 5 f; O chgrp 1002 f; S f",
    "touch f; chown 1000:5 f; U chmod 2755 f; S f; chmod 2745 f; S f; chown 7 f; S f",
    "mkdir g; chgrp 77 g; chmod 2777 g; U touch g/f; U mkdir g/d; touch g/r; mkdir g/e; S g/*",
    "mkdir d; chmod 6755 d; chown 1000:1000 d; S d; ln -s d l; chown -h 3:4 l; S l d",
    "for t in p c b; do mknod $t $t $(test $t = p || echo 1 3); chmod 6755 $t; chown 7:7 $t; S $t; \
     chmod 6711 $t; chown 8 $t; S $t; chmod 6745 $t; chown 1000:5 $t; U chgrp 1001 $t; S $t; done",
    "touch f; for o in '' -p -z; do chmod 2666 f; U fallocate $o -l 4096 f; S f; done; \
     chmod 2666 f; U sh -c 'echo x >> f'; S f; chmod 2666 f; U truncate -s 1 f; S f",
    "touch f; chown 1000:1001 f; chmod 2665 f; U truncate -s 9 f; S f; U sh -c 'echo x >> f'; S f; \
     U fallocate -l 99 f; S f; U setfacl -m u:7:r f; S f; U chgrp 1000 f; S f",
    "touch f; chown 1000:5 f; chmod 2755 f; U setfacl -m u:7:r f; S f; chmod 2755 f; \
     setfacl -m u:8:r f; S f; mkdir d; chown 1000:5 d; chmod 2755 d; U setfacl -m u:7:r d; S d",
    "umask 077; touch f; mkdir d; mkfifo p; S f d p; umask 0; touch g; mkdir e; S g e",
    // ACLs.
    "touch f; chmod 640 f; setfacl -m u:1000:rw f; getfacl -n f; S f; U sh -c 'echo x >> f'; \
     O cat f",
    "touch f; setfacl -m u:1000:rw f; chmod 600 f; getfacl -n f; U cat f; chmod 660 f; U cat f",
    "touch f; setfacl -m g:1001:r f; chmod o= f; U cat f; O cat f; setfacl -b f; getfacl -n f; S f",
    "mkdir d; setfacl -d -m u:1000:rwx,g::rx,o::- d; touch d/f; mkdir d/e; getfacl -n d d/f d/e",
    "mkdir d; setfacl -d -m u:1000:rwx d; umask 077; touch d/f; mkdir d/e; getfacl -n d/f d/e",
    "mkdir d; setfacl -d -m u::rwx,g::rx,o::x d; touch d/f; S d/f; ln -s x d/l; mkfifo d/p; S d/*",
    "touch f; setfacl -d -m u:1000:rw f; U setfacl -m u:1000:rw f; getfacl -n f",
    // Extended attributes.
    "touch f; setfattr -n user.a -v 1 f; getfattr -d f; setfattr -n foo.a -v 1 f; U getfattr -d f",
    "touch f; setfattr -n trusted.a -v 1 f; getfattr -m - f; chmod 666 f; U getfattr -m - f",
    "ln -s x l; setfattr -h -n user.a -v 1 l; touch f; setfattr -x user.a f; mkfifo p; \
     setfattr -n user.a p",
    "touch f; chmod 444 f; U setfattr -n user.a -v 1 f; mkdir d; setfattr -n user.a -v 1 d; \
     getfattr -d d",
    // Flags.
    "touch f; chattr +i f; lsattr f; echo x > f; rm -f f; ln f g; chmod 600 f; touch f; mv f g; \
     chattr -i f",
    "echo x > f; chattr +a f; echo y >> f; echo z > f; truncate -s 0 f; rm -f f; cat f; \
     chattr -a f",
    "touch f; chattr +a f; touch f; touch -d @5 f; touch -a f; chown 5 f; chmod 700 f; \
     setfattr -n user.a -v 1 f; fallocate -l 99 f; fallocate -n -l 99 f; S f; chattr -a f",
    "touch f; a=$(stat -c %z f); sleep 0.05; chattr +d f; test \"$a\" = \"$(stat -c %z f)\"; \
     echo $?; a=$(stat -c %z f); sleep 0.05; chattr -d f; test \"$a\" = \"$(stat -c %z f)\"; \
     echo $?",
    "touch f; mkdir d; for a in +D +T +C +P +F; do echo $a; chattr $a f; done; lsattr f; \
     chattr +D d; chattr +C d; lsattr -d d; chattr -D d; lsattr -d d",
    "touch f; U chattr +d f; chattr +dA f; lsattr f; mkdir d; chattr +i d; touch d/x; chattr -i d",
    "python3 -c \"
import fcntl, os, struct
f = os.open('f', os.O_CREAT | os.O_RDWR)
for x, projid in (0xc0, 0), (0x40, 0), (0, 0), (0x20, 0), (0x1, 0), (0, 7), (0x10, 0), (0, 0):
    try:
        fcntl.ioctl(f, 0x401c5820, struct.pack('7I', x, 0, 0, projid, 0, 0, 0))
    except OSError as error:
        print(error)
    got = bytearray(28)
    fcntl.ioctl(f, 0x801c581f, got)
    print(hex(x), projid, got[:4].hex(), flush=True)
    os.system('lsattr f')
\"",
    "touch f; python3 -c \"
import os, time
for value, flags in (b'1', 3), (b'1', 1), (b'1', 3), (b'2', 2):
    try:
        os.setxattr('f', 'user.a', value, flags)
    except OSError as error:
        print(error)
before = os.stat('f').st_ctime_ns
os.setxattr('f', 'user.a', b'2')
print(os.stat('f').st_ctime_ns == before)
time.sleep(0.05)
os.setxattr('f', 'user.a', b'3')
print(os.stat('f').st_ctime_ns == before, os.getxattr('f', 'user.a'))
\"",
    // Sizes and data.
    "truncate -s 17592186040320 f; S f; truncate -s 17592186044416 f; truncate -s 0 f; S f",
    "echo abc > f; truncate -s 2 f; truncate -s 5 f; od -c f; dd if=/dev/zero of=f bs=1 \
     seek=9000 count=1 \
     2> /dev/null; stat -c '%s %b' f",
    "fallocate -l 40960 f; stat -c '%s %b' f; fallocate -p -o 4096 -l 8192 f; stat -c '%s %b' f",
    "fallocate -n -l 40960 f; stat -c '%s %b' f; fallocate -z -o 0 -l 100 f; \
     fallocate -c -l 4096 f | wc",
    "head -c 100000 /dev/urandom > f; cp --reflink=auto f g; cmp f g; cp --sparse=always f h; \
     cmp f h",
    // Direct writes.
    "head -c 8192 /dev/zero > f; chmod 6777 f; D='dd if=/dev/zero of=f bs=4096 count=1 \
     oflag=direct conv=notrunc status=none'; $D; S f; U $D; S f",
    "head -c 8192 /dev/zero > f; C='setfattr -n security.capability -v \
     0x0100000200040000000000000000000000000000'; $C f; getfattr -m - f; dd if=/dev/zero of=f \
     bs=4096 count=1 oflag=direct conv=notrunc status=none; getfattr -m - f; $C f; echo x >> f; \
     getfattr -m - f; $C f; truncate -s 5 f; getfattr -m - f; $C f; : > f; getfattr -m - f",
    // Access times: moved once, then not before something changes.
    "mkdir d; touch d/f; touch -a -d @1 d; sleep 0.05; ls d; test $(stat -c %X d) -gt 1; echo $?; \
     a=$(stat -c %x d); sleep 0.05; ls d; test \"$a\" = \"$(stat -c %x d)\"; echo $?; touch d/g; \
     sleep 0.05; ls d; test \"$a\" = \"$(stat -c %x d)\"; echo $?",
    "ln -s x l; touch -h -a -d @1 l; sleep 0.05; readlink l; test $(stat -c %X l) -gt 1; echo $?; \
     a=$(stat -c %x l); sleep 0.05; readlink l; test \"$a\" = \"$(stat -c %x l)\"; echo $?",
    // Times.
    "touch -d @-5 f; stat -c '%X %Y' f; touch -d @8589934592 f; stat -c '%X %Y' f",
    "touch -d @15032385535 f; stat -c '%Y' f; touch -d @34359738368 f; stat -c '%Y' f",
    "touch -d @-9999999999 f; stat -c '%Y' f; touch -d @1 f; echo x > f; \
     test $(stat -c %Y f) -gt 1",
    "mkdir d; touch -d @1 d; touch d/f; test $(stat -c %Y d) -gt 1; touch -d @1 d; rm d/f; \
     stat -c %Y d | wc",
];

fn ran(script: &str, dir: &Path) -> String {
    let output = Command::new("sh")
        .args(["-c", &format!("{PRELUDE}{script}")])
        .env("LC_ALL", "C")
        .current_dir(dir)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    format!("{out}{err}{}", output.status).replace(&*dir.to_string_lossy(), "DIR")
}

fn missing_program() -> Option<&'static str> {
    let there = |program: &str| Command::new(program).arg("--version").output().is_ok();
    ["setpriv", "setfacl", "getfattr", "lsattr", "fallocate", "python3"]
        .into_iter()
        .find(|p| !there(p))
}

#[test]
fn a_mount_answers_as_the_kernel_does() {
    let name = "a_mount_answers_as_the_kernel_does";
    if !require(name, &[Need::Fuse, Need::E2fsck, Need::Root, Need::Loop]) {
        return;
    }
    if let Some(program) = missing_program() {
        return syncline_testkit::skip(name, &format!("needs {program}"));
    }
    let spec = ImageSpec::with_size(64 << 20);
    let kernel_image = mkfs(&spec);
    let kernel = KernelMount::new(kernel_image.path(), "nosuid,nodev").unwrap();
    let mut ours = Mounted::new(mkfs(&spec), "allow_other");
    // The comparison would be worth nothing if the commands did not run.
    let works = ran("touch f; chmod 600 f; U cat f; U id -G", &ours.dir);
    assert!(works.contains("Permission denied") && works.contains("1000 1001"), "{works}");
    let mut differ = Vec::new();
    for (nr, case) in CASES.iter().enumerate() {
        let said = [kernel.path(), &ours.dir].map(|root| {
            let dir = root.join(format!("case-{nr}"));
            std::fs::create_dir(&dir).unwrap();
            ran(case, &dir)
        });
        if said[0] != said[1] {
            differ.push(format!("{case}\n--- kernel:\n{}\n--- ours:\n{}\n", said[0], said[1]));
        }
    }
    assert!(differ.is_empty(), "{} cases differ:\n{}", differ.len(), differ.join("\n"));
    kernel.unmount().unwrap();
    ours.unmount_clean();
}

const SUITE_NEEDS: [Need; 4] = [Need::Fuse, Need::E2fsck, Need::Root, Need::Loop];

/// Assertions in which the mount and the kernel's ext4 answer differently, by a part of their
/// names, and why.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("renameat2 with WHITEOUT", "a mount has no whiteouts, so it is no upper layer of overlayfs"),
    ("ranges taken out and put in", "Linux passes these modes of fallocate to no FUSE mount"),
    ("an empty read is none", "Linux asks a FUSE mount for nothing, so it sees no read"),
    ("O_NOATIME", "Linux does not tell a FUSE mount of it"),
    ("access times by relatime", "the kernel may read directories and links from its own cache"),
];

/// The mount gives what the kernel gives. Where that is not the wanted answer the kernel is another
/// one than the cases were written on; it is told, and it is right.
fn compare(kernel: &[Check], ours: &[Check]) {
    assert_eq!(kernel.len(), ours.len());
    let mut said = Vec::new();
    for (kernel, ours) in kernel.iter().zip(ours) {
        assert_eq!(kernel.name, ours.name);
        if !kernel.agrees() {
            println!("{}\n  kernel: {}, wanted: {}", kernel.name, kernel.got, kernel.wanted);
        }
        let excepted = EXCEPTIONS.iter().any(|(part, _)| ours.name.contains(part));
        if ours.got != kernel.got && !excepted {
            said.push(format!("{}\n  mount: {}, kernel: {}", ours.name, ours.got, kernel.got));
        }
    }
    assert!(said.is_empty(), "{} of {} differ:\n{}", said.len(), ours.len(), said.join("\n"));
}

fn mounts(spec: &ImageSpec) -> (KernelMount, Mounted) {
    let image = mkfs(spec);
    let kernel = KernelMount::new(image.path(), "nosuid,nodev").unwrap();
    (kernel, Mounted::new(mkfs(spec), "allow_other"))
}

/// Space that can be written before ENOSPC, with delayed allocation, index blocks and root's share.
#[test]
fn df_says_what_the_kernel_says() {
    if !require("df_says_what_the_kernel_says", &SUITE_NEEDS) {
        return;
    }
    for spec in [ImageSpec::with_size(64 << 20), ImageSpec::with_size(300 << 20)] {
        let (kernel, mut ours) = mounts(&spec);
        let [theirs, mine] = [kernel.path(), &ours.dir].map(|dir| {
            let df = || {
                let found = rustix::fs::statvfs(dir).unwrap();
                (found.f_blocks, found.f_bfree, found.f_bavail, found.f_files, found.f_ffree)
            };
            let fresh = df();
            let file = std::fs::File::create(dir.join("f")).unwrap();
            let all = fresh.2 * found_block_bytes(dir);
            rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, all).unwrap();
            assert_eq!(df().2, 0, "what is available can be had, and is all");
            (fresh, df())
        });
        assert_eq!(theirs, mine);
        kernel.unmount().unwrap();
        ours.unmount_clean();
    }
}

fn found_block_bytes(dir: &Path) -> u64 {
    rustix::fs::statvfs(dir).unwrap().f_frsize
}

#[test]
fn the_posix_suite_agrees_with_the_kernel() {
    if !require("the_posix_suite_agrees_with_the_kernel", &SUITE_NEEDS) {
        return;
    }
    let (kernel, mut ours) = mounts(&ImageSpec::with_size(64 << 20));
    let elsewhere = scratch();
    let [theirs, mine] = [kernel.path(), &ours.dir].map(|dir| {
        let checks = conform::run(dir, elsewhere.path(), "").unwrap();
        assert!(checks.len() > 3500, "{} assertions", checks.len());
        checks
    });
    compare(&theirs, &mine);
    kernel.unmount().unwrap();
    ours.unmount_clean();
}

#[test]
fn the_posix_suite_agrees_when_read_only() {
    if !require("the_posix_suite_agrees_when_read_only", &SUITE_NEEDS) {
        return;
    }
    let image = mkfs(&ImageSpec::with_size(16 << 20));
    let writable = KernelMount::new(image.path(), "").unwrap();
    conform::prepare_read_only(writable.path()).unwrap();
    writable.unmount().unwrap();
    let copy = image.duplicate();
    let kernel = KernelMount::new(copy.path(), "ro,nosuid,nodev").unwrap();
    let mut ours = Mounted::new(image, "ro,allow_other");
    let elsewhere = scratch();
    let [theirs, mine] = [kernel.path(), &ours.dir]
        .map(|dir| conform::run_read_only(dir, elsewhere.path()).unwrap());
    compare(&theirs, &mine);
    kernel.unmount().unwrap();
    ours.unmount_clean();
}

#[test]
fn the_posix_suite_agrees_when_full() {
    if !require("the_posix_suite_agrees_when_full", &SUITE_NEEDS) {
        return;
    }
    let spec = ImageSpec { inode_count: Some(32), ..ImageSpec::with_size(8 << 20) };
    let (kernel, mut ours) = mounts(&spec);
    let elsewhere = scratch();
    let [theirs, mine] = [kernel.path(), &ours.dir].map(|dir| {
        std::fs::create_dir(dir.join("d")).unwrap();
        std::fs::write(dir.join("f"), "").unwrap();
        std::fs::write(dir.join("e"), "").unwrap();
        let made =
            (0..).take_while(|nr| std::fs::write(dir.join(format!("more-{nr}")), "").is_ok());
        assert!(made.count() < 64);
        conform::run_full(dir, elsewhere.path()).unwrap()
    });
    compare(&theirs, &mine);
    kernel.unmount().unwrap();
    ours.unmount_clean();
}
