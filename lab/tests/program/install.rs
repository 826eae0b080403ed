//! `packaging/install-lab.sh`: the program with its pages, completions and unit, below a prefix.

use std::path::Path;
use std::process::Command;

use crate::support::{done, lab, scratch};

#[test]
fn a_prefix_has_the_program_and_its_unit() {
    let dir = scratch();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (build, installed) = (dir.path().join("build"), dir.path().join("root"));
    std::fs::create_dir(&build).unwrap();
    std::os::unix::fs::symlink(lab().get_program(), build.join("syncline-lab")).unwrap();
    let installing = Command::new("sh")
        .arg(root.join("packaging/install-lab.sh"))
        .args(["/opt/mine".as_ref(), installed.as_os_str(), build.as_os_str()])
        .output()
        .unwrap();
    assert!(installing.status.success(), "{}", String::from_utf8_lossy(&installing.stderr));
    let prefix = installed.join("opt/mine");
    for (path, has) in [
        ("share/man/man1/syncline-lab-bench.1", "syncline-lab"),
        ("share/bash-completion/completions/syncline-lab", "complete -- "),
        ("share/zsh/vendor-completions/_syncline-lab", "complete -- "),
        ("share/doc/syncline-lab/echarts/NOTICE", "ECharts"),
        ("share/doc/syncline/samples/README.md", "mail"),
        (
            "lib/systemd/system/syncline-watch@.service",
            "ExecStart=/opt/mine/bin/syncline-lab trace watch",
        ),
    ] {
        let text = std::fs::read_to_string(prefix.join(path)).unwrap();
        assert!(text.contains(has), "{path}: {text}");
    }
    let trace = prefix.join("share/doc/syncline/samples/mail.pages.trace");
    assert!(done(&["trace".as_ref(), "stat".as_ref(), trace.as_os_str()]).contains("page trace"));
    let said = Command::new(prefix.join("bin/syncline-lab")).arg("--version").output().unwrap();
    assert!(said.status.success());
}
