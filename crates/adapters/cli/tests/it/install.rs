//! A prefix as `make install` and the packages fill it: `packaging/install.sh`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::scratch;

const PREFIX: &str = "/opt/mine";

/// A build as the script wants it: links to what cargo has built for the tests.
fn build(dir: &Path) -> PathBuf {
    let build = dir.join("build");
    std::fs::create_dir(&build).unwrap();
    let link = |from: &Path, name: &str| std::os::unix::fs::symlink(from, build.join(name));
    link(Path::new(env!("CARGO_BIN_EXE_syncline")), "syncline").unwrap();
    let library = crate::preload::library();
    link(&library, "libsyncline_preload.so").unwrap();
    // Its own tests load the extension; here it is a file that must arrive.
    link(&library, "libsyncline_sqlite.so").unwrap();
    build
}

/// Highest exposure of a unit that serves any user, in tenths.
const EXPOSURE_MAX: &str = "--threshold=15";

/// As systemd reads them; that of the users' service restricts it as far as it is promised.
#[test]
fn the_units_are_valid_and_contained() {
    let test = "the_units_are_valid_and_contained";
    let analyze = || Command::new("systemd-analyze");
    if !analyze().arg("--version").output().is_ok_and(|ran| ran.status.success()) {
        return syncline_testkit::skip(test, "systemd-analyze is not installed");
    }
    let dir = scratch();
    let packaged = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../packaging/systemd");
    let program = env!("CARGO_BIN_EXE_syncline");
    let copy = |unit: &str| {
        let text = std::fs::read_to_string(packaged.join(unit)).unwrap();
        let name = Path::new(unit).file_name().unwrap();
        let copied = dir.path().join(name);
        std::fs::write(&copied, text.replace("/usr/bin/syncline", program)).unwrap();
        copied
    };
    let units = ["syncline.socket", "syncline@.service", "user/syncline-card@.service"].map(copy);
    let ran = |words: &[&str], unit: &Path| {
        let mut command = analyze();
        command.args(words).arg(unit).env("XDG_RUNTIME_DIR", dir.path());
        let ran = command.output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(ran.status.success() && !said.contains(program), "{}: {said}", unit.display());
    };
    ran(&["verify", "--man=no"], &units[0]);
    ran(&["verify", "--man=no", "--user"], &dir.path().join("syncline-card@sdb1.service"));
    ran(&["security", "--offline=true", EXPOSURE_MAX], &units[1]);
}

#[test]
fn a_prefix_has_all_that_runs_from_it() {
    let dir = scratch();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let build = build(dir.path());
    let installed = dir.path().join("root");
    let done = Command::new("sh")
        .arg(root.join("packaging/install.sh"))
        .args([PREFIX.as_ref(), installed.as_os_str(), build.as_os_str()])
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));

    let prefix = dir.path().join(format!("root{PREFIX}"));
    let text = |path: &str| std::fs::read_to_string(prefix.join(path)).unwrap();
    let program = prefix.join("bin/syncline");
    for helper in ["sbin/mount.fuse.syncline", "sbin/umount.fuse.syncline"] {
        let target = std::fs::canonicalize(prefix.join(helper)).unwrap();
        assert_eq!(target, std::fs::canonicalize(&program).unwrap(), "{helper}");
    }
    for (path, has) in [
        ("share/man/man1/syncline-mount.1", "syncline"),
        ("share/man/man8/mount.fuse.syncline.8", "syncline-mount.1"),
        ("share/bash-completion/completions/syncline", "complete -- "),
        ("share/fish/vendor_completions.d/syncline.fish", "complete -- "),
        ("share/zsh/vendor-completions/_syncline", "complete -- "),
        ("lib/udev/rules.d/70-syncline.rules", "SUBSYSTEM"),
        ("share/doc/syncline/docs/INSTALL.md", "make install"),
        ("lib/systemd/system/syncline-mount@.service", "ExecStart=/opt/mine/bin/syncline"),
        ("lib/systemd/system/syncline.socket", "ListenSequentialPacket=/run/filesystems/syncline"),
        ("lib/systemd/system/syncline@.service", "ExecStart=/opt/mine/bin/syncline service"),
        ("lib/systemd/user/syncline-card@.service", "exec /opt/mine/bin/syncline mount"),
        ("lib/systemd/system/user@.service.d/50-syncline.conf", "udevadm trigger"),
    ] {
        assert!(text(path).contains(has), "{path}");
    }
    assert!(prefix.join("lib/syncline/libsyncline_sqlite.so").is_file());

    let script = root.canonicalize().unwrap().join("packaging/try-documents.sh");
    let mut links = Command::new("sh");
    links.arg(script).arg("links").arg(prefix.join("share/doc/syncline")).current_dir(dir.path());
    let links = links.output().unwrap();
    assert!(links.status.success(), "{}", String::from_utf8_lossy(&links.stdout));

    // The program finds its library from where it lies.
    let ran = Command::new(&program).args(["preload", "--relaxed", "*", "--", "true"]).output();
    let ran = ran.unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}
