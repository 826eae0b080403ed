//! The examples in other languages run, each where its toolchain and the package that calls C are
//! to be had. Packages stay in `target/bindings`, so that only the first run asks a registry.

use std::path::{Path, PathBuf};
use std::process::Command;

use syncline_testkit::{Need, e2fsck_clean, require, skip};

use crate::{here, library, run, scratch, there};

/// Versions of the packages that call C.
const KOFFI: &str = "koffi@3.3.4";
const JNA: &str = "net.java.dev.jna:jna:5.17.0";

/// A directory that stays for the packages of a language.
fn kept(language: &str) -> PathBuf {
    let dir = here("../../../target/bindings").join(language);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// A package manager. Without an answer from its registry it tries again for a quarter of an hour;
/// here it has 90 seconds.
fn manager(name: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "90", name]);
    command
}

/// Runs a package manager if what it makes is not there; says whether it is then.
fn had(test: &str, made: &Path, manager: &mut Command) -> bool {
    let done = made.exists() || manager.output().is_ok_and(|ran| ran.status.success());
    if !(done && made.exists()) {
        skip(test, &format!("{manager:?} has no answer; look at the network"));
        return false;
    }
    true
}

/// Runs the example on a new image, and judges that.
fn example(language: &str, command: &mut Command, dir: &Path) {
    let image = dir.join("card.img");
    let ran = run(command.arg(&image), dir);
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(said.starts_with(&format!("hello from {language}\nclosed: ")), "{said}");
    e2fsck_clean(&image).unwrap();
}

#[test]
fn node_writes_an_image() {
    const NAME: &str = "node_writes_an_image";
    if !there(NAME, "node")
        || !there(NAME, "npm")
        || !there(NAME, "timeout")
        || !require(NAME, &[Need::E2fsck])
    {
        return;
    }
    let packages = kept("node");
    let mut npm = manager("npm");
    npm.args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"]);
    npm.arg(&packages).arg(KOFFI);
    if !had(NAME, &packages.join("node_modules/koffi/package.json"), &mut npm) {
        return;
    }
    let program = packages.join("example.mjs");
    std::fs::copy(here("examples/node/example.mjs"), &program).unwrap();
    let dir = scratch();
    let mut node = Command::new("node");
    node.arg(&program).env("SYNCLINE_LIBRARY", library());
    example("Node", &mut node, dir.path());
}

#[test]
fn go_writes_an_image() {
    const NAME: &str = "go_writes_an_image";
    if !Command::new("go").arg("version").output().is_ok_and(|ran| ran.status.success()) {
        return skip(NAME, "needs go; install golang");
    }
    if !there(NAME, "cc") || !there(NAME, "pkg-config") || !require(NAME, &[Need::E2fsck]) {
        return;
    }
    let (dir, cache) = (scratch(), kept("cgo"));
    // Go keeps the flags of the linker in its cache: the directory that they name stays the same.
    let link = cache.join("libsyncline.so");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(library(), link).unwrap();
    let text = format!(
        "Name: syncline\nDescription: -\nVersion: 0\nCflags: -I{}\nLibs: -L{} -lsyncline\n",
        here("include").display(),
        cache.display()
    );
    std::fs::write(dir.path().join("syncline.pc"), text).unwrap();
    let build = |package: &str, name: &str| {
        let program = dir.path().join(name);
        let mut go = Command::new("go");
        go.args(["build", "-o"]).arg(&program).arg(package).current_dir(here("examples/go"));
        go.env("PKG_CONFIG_PATH", dir.path()).env("GOCACHE", &cache).env("CGO_ENABLED", "1");
        go.env("GOFLAGS", "-mod=mod").env("GOTOOLCHAIN", "local");
        let built = go.output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        Command::new(program)
    };
    example("Go", &mut build(".", "example"), dir.path());
    let mut jobs = build("./jobs", "jobs");
    let ran = run(jobs.arg(dir.path()).args(["one", "two"]), dir.path());
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "2 images\n");
    for job in ["one", "two"] {
        let image = dir.path().join(format!("{job}.img"));
        e2fsck_clean(&image).unwrap();
        let text = syncline_testkit::debugfs(&image, "cat /etc/job");
        assert!(text.contains(&format!("echo {job}\n")), "{text}");
    }
}

#[test]
fn java_writes_an_image() {
    const NAME: &str = "java_writes_an_image";
    if !there(NAME, "java")
        || !there(NAME, "mvn")
        || !there(NAME, "timeout")
        || !require(NAME, &[Need::E2fsck])
    {
        return;
    }
    let packages = kept("java");
    let mut maven = manager("mvn");
    maven.args(["-q", "-B", "dependency:copy"]).arg(format!("-Dartifact={JNA}"));
    maven.arg(format!("-DoutputDirectory={}", packages.display())).arg("-Dmdep.stripVersion=true");
    let jar = packages.join("jna.jar");
    if !had(NAME, &jar, maven.current_dir(&packages)) {
        return;
    }
    let dir = scratch();
    let mut java = Command::new("java");
    java.arg(format!("-Djna.library.path={}", dir.path().display())).arg("-cp").arg(&jar);
    java.arg(here("examples/java/Example.java"));
    example("Java", &mut java, dir.path());
}
