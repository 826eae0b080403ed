//! The recipes of samples/ci: the `run:` lines of the workflow, step by step, as a service of
//! continuous integration runs them; the script that makes a disk; what a Containerfile runs.

use std::path::Path;
use std::process::Command;

use syncline_testkit::skip;

use crate::support::{binary, copy_program, file, run, scratch, text};

const WORKFLOW: &str = include_str!("../../../../../samples/ci/image.yml");

/// Name and script of each step that has one. The file uses the two forms of `run:` that this
/// reads.
fn steps(workflow: &str) -> Vec<(String, String)> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut lines = workflow.lines().peekable();
    let (mut name, mut found) = (String::new(), Vec::new());
    while let Some(line) = lines.next() {
        let (key, value) = line.trim().split_once(": ").unwrap_or((line.trim(), ""));
        match (key, value) {
            ("- name", value) => name = value.to_owned(),
            ("run", "|") => {
                let mut script = String::new();
                while let Some(inner) = lines.next_if(|next| indent(next) > indent(line)) {
                    script += inner.trim();
                    script.push('\n');
                }
                found.push((name.clone(), script));
            }
            ("run", value) => found.push((name.clone(), value.to_owned())),
            _ => {}
        }
    }
    found
}

/// A `PATH` with the program under its name.
fn path_with_program(dir: &Path) -> String {
    let programs = dir.join("programs");
    std::fs::create_dir(&programs).unwrap();
    copy_program(&binary(), &programs.join("syncline"));
    format!("{}:/usr/sbin:/sbin:{}", programs.display(), std::env::var("PATH").unwrap())
}

/// A tree with a file, and an archive of it.
fn rootfs(dir: &Path) {
    std::fs::create_dir_all(dir.join("rootfs/etc")).unwrap();
    file(&dir.join("rootfs/etc"), "hostname", "card\n");
    let mut tar = Command::new("tar");
    tar.args(["-C", "rootfs", "-cf", "rootfs.tar", "."]).current_dir(dir);
    assert!(tar.status().unwrap().success());
}

#[test]
fn the_script_of_samples_makes_a_disk() {
    if Command::new("/sbin/sfdisk").arg("--version").output().is_err() {
        return skip("the_script_of_samples_makes_a_disk", "needs sfdisk; install fdisk");
    }
    let dir = scratch();
    rootfs(dir.path());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../samples/ci/disk.sh");
    let mut shell = Command::new("sh");
    shell.arg(script).args(["rootfs.tar", "disk.img"]).current_dir(dir.path());
    let ran = shell.env("PATH", path_with_program(dir.path())).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let disk = dir.path().join("disk.img");
    let found = run(&["cat", "--partition", "1", &format!("{}:/etc/hostname", text(&disk))]);
    assert_eq!(found.text(), "card\n", "{found:?}");
    assert!(!dir.path().join("disk.img.root").exists());
}

/// Without a container program: the lines of the Containerfile that run this one.
#[test]
fn the_containerfile_makes_an_image() {
    let dir = scratch();
    rootfs(dir.path());
    let path = path_with_program(dir.path());
    let lines = include_str!("../../../../../samples/ci/Containerfile").lines();
    let lines: Vec<&str> =
        lines.filter(|line| line.starts_with("RUN") && line.contains("syncline ")).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    for line in lines {
        let line = line.strip_prefix("RUN ").unwrap();
        let line = line.strip_prefix("--mount=from=rootfs,target=/rootfs ").unwrap_or(line);
        let line = line.replace(" /root", " ./root");
        let mut shell = Command::new("sh");
        shell.args(["-ec", &line]).current_dir(dir.path()).env("PATH", &path);
        let ran = shell.output().unwrap();
        assert!(ran.status.success(), "{line}: {}", String::from_utf8_lossy(&ran.stderr));
    }
    let image = dir.path().join("root.img");
    let found = run(&["cat", &format!("{}:/etc/hostname", text(&image))]);
    assert_eq!(found.text(), "card\n", "{found:?}");
}

/// The steps for a Windows and a macOS machine, with the program that was built here.
#[test]
fn the_recipe_for_other_systems_works_on_this_one() {
    let dir = scratch();
    let path = path_with_program(dir.path());
    let steps = steps(include_str!("../../../../../samples/ci/systems.yml"));
    assert_eq!(steps.len(), 5, "{steps:?}");
    for (name, script) in steps.iter().filter(|(name, _)| name != "Build") {
        let mut shell = Command::new("bash");
        shell.args(["-e", "-c", script]).current_dir(dir.path()).env("PATH", &path);
        let ran = shell.output().unwrap();
        assert!(ran.status.success(), "{name}: {}", String::from_utf8_lossy(&ran.stderr));
    }
}

#[test]
fn the_recipe_for_ci_builds_and_checks_an_image() {
    let dir = scratch();
    let path = path_with_program(dir.path());
    let epoch = WORKFLOW.split("SOURCE_DATE_EPOCH: ").nth(1).and_then(|rest| rest.lines().next());
    let steps = steps(WORKFLOW);
    assert_eq!(steps.len(), 6, "{steps:?}");
    for (name, script) in steps {
        // `make test-dist` installs the packages.
        if name == "Install" {
            assert!(script.contains("syncline_*.deb"), "{script}");
            continue;
        }
        let mut shell = Command::new("bash");
        shell.args(["-e", "-o", "pipefail", "-c", &script]).current_dir(dir.path());
        let ran = shell.env("PATH", &path).env("SOURCE_DATE_EPOCH", epoch.unwrap()).output();
        let ran = ran.unwrap();
        assert!(ran.status.success(), "{name}: {}", String::from_utf8_lossy(&ran.stderr));
    }
    let there = |name: &str| Path::exists(&dir.path().join(name));
    assert!(there("root.img") && there("check.json"));
}
