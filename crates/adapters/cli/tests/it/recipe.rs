//! The workflow of samples/ci: its `run:` lines, step by step, as a service of continuous
//! integration runs them.

use std::path::Path;
use std::process::Command;

use crate::support::{binary, copy_program, scratch};

const WORKFLOW: &str = include_str!("../../../../../samples/ci/image.yml");

/// Name and script of each step that has one. The file uses the two forms of `run:` that this
/// reads.
fn steps() -> Vec<(String, String)> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut lines = WORKFLOW.lines().peekable();
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

#[test]
fn the_recipe_for_ci_builds_and_checks_an_image() {
    let dir = scratch();
    let programs = dir.path().join("programs");
    std::fs::create_dir(&programs).unwrap();
    copy_program(&binary(), &programs.join("syncline"));
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let epoch = WORKFLOW.split("SOURCE_DATE_EPOCH: ").nth(1).and_then(|rest| rest.lines().next());
    let steps = steps();
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
