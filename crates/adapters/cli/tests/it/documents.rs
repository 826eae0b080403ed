//! The command lines of `syncline` in README and docs run as they stand, in their order, as root
//! and as a user. A test of each program parses all of them.

use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;

use crate::mount::users_may;
use crate::preload::library;
use crate::support::{binary, copy_program, scratch};
use syncline_testkit::{Need, require, skip};

const DOCUMENTS: [&str; 4] =
    ["README.md", "docs/MOUNTING.md", "docs/COMMANDS.md", "docs/INSTALL.md"];

/// Parts of lines that do not run here, and why.
const LEFT_OUT: &[(&str, &str)] = &[
    ("skopeo", "the network"),
    ("docker", "the network and a service of containers"),
    ("oci:debian", "an image that skopeo fetches; tests/it/layers.rs makes one"),
    ("win.vhdx", "a disk of another program; the image crate's tests read one"),
    ("serve --nfs", "runs until Ctrl-C; tests/it/serve.rs"),
    ("/srv/card.log", "a path of the reader's machine; tests/it/buffer.rs"),
    ("buffer_log=card.log", "a log that exists; tests/it/buffer.rs"),
    ("buffer attach", "a device; tests/it/buffer.rs"),
    ("buffer status", "a device; tests/it/buffer.rs"),
    ("buffer relax", "a mounted ext4 on a device; tests/it/buffer.rs"),
    ("buffer zeros FILE ...", "files of the reader; tests/it/buffer.rs"),
    ("ctl ", "a mount or buffer of the reader; tests/it/ctl.rs"),
    ("syncline top DIR", "runs until q; tests/it/top.rs"),
    ("aria2c", "the network"),
    ("syncline shell disk.img", "a terminal; tests/it/shell.rs"),
    ("syncline-lab", "the laboratory"),
];

/// Files that the documents take for granted.
const FILES: &str = r#"
mkdir disk card DIR rootfs rootfs/etc etc bin home
cp /bin/true bin/PROGRAM
echo x > etc/x; echo 127.0.0.1 > rootfs/etc/fstab; : > map
tar -cf rootfs.tar rootfs; tar -czf base.tar.gz rootfs; tar -cf - etc | zstd -q > app.tar.zst
tar -cJf rootfs.tar.xz rootfs; head -c 300000 /dev/zero > pad
tar -cM -L 200 -f vol1.tar -f vol2.tar pad
owner=root_owner=$(id -u):$(id -g)
syncline mkfs --size 64M -E $owner disk.img; syncline mkfs --size 64M -E $owner card.img
syncline cp -r rootfs/etc disk.img:/; syncline mkdir disk.img:/home
truncate -s 64M sdcard.img
printf 'label: gpt\n,8M\n,\n' | sfdisk -q sdcard.img
syncline mkfs --size 32M part.img
dd if=part.img of=sdcard.img bs=1M seek=9 conv=notrunc status=none
head -c 65536 /dev/zero > data
syncline flashlite write film.log data > said
"#;

/// The lines in blocks of code that call the program, without their comments.
fn lines(root: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for document in DOCUMENTS {
        let text = std::fs::read_to_string(root.join(document)).unwrap();
        let mut fenced = false;
        for (number, line) in text.lines().enumerate() {
            fenced ^= line.starts_with("```");
            let line = line.strip_prefix("$ ").unwrap_or(line);
            let calls = line.starts_with("syncline") || line.contains("| syncline ");
            if fenced && calls {
                found.push((format!("{document}:{}", number + 1), line.to_owned()));
            }
        }
    }
    found
}

/// Runs every line in a new directory, which `user` owns. Without `mounts` those of mounts are left
/// out.
fn all(user: Option<u32>, mounts: bool) {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.."));
    let dir = scratch();
    let place = dir.path();
    let programs = place.join("programs");
    std::fs::create_dir(&programs).unwrap();
    copy_program(&binary(), &programs.join("syncline"));
    std::fs::copy(library(), programs.join("libsyncline_preload.so")).unwrap();
    let shell = |line: &str| {
        let mut command = match user {
            None => Command::new("sh"),
            Some(user) => {
                let mut command = Command::new("setpriv");
                command.arg(format!("--reuid={user}")).arg(format!("--regid={user}"));
                command.args(["--clear-groups", "sh"]);
                command
            }
        };
        command.args(["-ec", line]).current_dir(place).env("HOME", place);
        let path = std::env::var("PATH").unwrap();
        let own = format!("{}:{}/bin:{path}:/usr/sbin:/sbin", programs.display(), place.display());
        command.env("PATH", own).output().unwrap()
    };
    if let Some(user) = user {
        chown(place, Some(user), Some(user)).unwrap();
    }
    let said = |output: &std::process::Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let made = shell(FILES);
    assert!(made.status.success(), "{}", said(&made));
    let mut count = 0;
    for (at, line) in lines(root) {
        let of_mounts = ["syncline mount", "syncline status", "syncline umount"];
        if LEFT_OUT.iter().any(|(part, _)| line.contains(part))
            || !mounts && of_mounts.iter().any(|start| line.starts_with(start))
        {
            continue;
        }
        // A document mounts again, and makes again, under the same name.
        if line.contains("syncline mount") || line.contains("import ") {
            shell("for d in disk card; do syncline umount ~/$d 2> said || :; done; rm -f r*.img");
        }
        let ran = shell(&line);
        assert!(ran.status.success(), "{at}: {line}: {}", said(&ran));
        count += 1;
    }
    shell("for d in disk card; do syncline umount ~/$d || :; done");
    assert!(count > 18, "only {count} lines ran");
}

#[test]
fn commands_of_documents_run_as_root() {
    if require("commands_of_documents_run_as_root", &[Need::Fuse, Need::E2fsck, Need::Root]) {
        all(None, true);
    }
}

#[test]
fn commands_of_documents_run_as_a_user() {
    let test = "commands_of_documents_run_as_a_user";
    if !require(test, &[Need::Fuse, Need::E2fsck, Need::Root]) {
        return;
    }
    if !users_may() {
        skip(&format!("{test}: mounts"), crate::mount::USERS_MAY_NOT);
    }
    all(Some(1000), users_may());
}

#[test]
fn what_is_left_out_is_there() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.."));
    let lines = lines(root);
    for (part, why) in LEFT_OUT {
        let is_there = lines.iter().any(|(_, line)| line.contains(part));
        assert!(is_there && !why.is_empty(), "{part} is in no document: take it out");
    }
}
