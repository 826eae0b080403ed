//! The recipes of samples/ci: the `run:` lines of the workflow, step by step, as a service of
//! continuous integration runs them; the script that makes a disk; what a Containerfile runs. And
//! those for the package builders of Alpine and OpenWrt, with stand-ins for what these provide.

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

/// The version of the workspace, which each recipe names.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A stand-in of cargo: it notes its arguments, and a build or an installation of the program is a
/// copy of the one under test.
const CARGO: &str = r#"#!/bin/sh
echo "$*" >>"$NOTES"
case $1 in
build) mkdir -p target/release && cp "$PROGRAM" target/release/syncline ;;
install) mkdir -p "$ROOT/bin" && cp "$PROGRAM" "$ROOT/bin/syncline" ;;
esac
"#;

/// A folder `source` with what a recipe takes from the sources, and a folder with a `cargo`.
fn sources(dir: &Path) -> String {
    use std::os::unix::fs::PermissionsExt;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    std::fs::create_dir_all(dir.join("source/packaging")).unwrap();
    for name in ["packaging/install-program.sh", "README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        std::fs::copy(root.join(name), dir.join("source").join(name)).unwrap();
    }
    std::fs::create_dir(dir.join("bin")).unwrap();
    file(&dir.join("bin"), "cargo", CARGO);
    copy_program(&binary(), &dir.join("program"));
    let cargo = dir.join("bin/cargo");
    std::fs::set_permissions(&cargo, std::fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:{}", dir.join("bin").display(), std::env::var("PATH").unwrap())
}

/// The files that a recipe installed work, and are all that a package needs.
fn assert_installed(root: &Path, files: &[&str]) {
    let version = Command::new(root.join("usr/bin/syncline")).arg("--version").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&version.stdout).trim(), format!("syncline {VERSION}"));
    for name in files {
        assert!(root.join(name).exists(), "{name}");
    }
    for helper in ["sbin/mount.fuse.syncline", "sbin/umount.fuse.syncline"] {
        assert!(root.join(helper).exists(), "{helper} leads to nothing");
    }
}

/// Every function of the recipe, in the order and the shell of abuild, which is busybox's.
#[test]
fn the_recipe_for_alpine_packs_the_program() {
    let name = "the_recipe_for_alpine_packs_the_program";
    if Command::new("busybox").arg("true").output().is_err() {
        return skip(name, "needs busybox; install busybox-static");
    }
    let dir = scratch();
    let path = sources(dir.path());
    let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../packaging/alpine/APKBUILD");
    let script = r#"
set -eu
default_prepare() { :; }
CARCH=armv7
. "$RECIPE"
for one in pkgname pkgver pkgrel pkgdesc url arch license source; do
    eval "[ -n \"\$$one\" ]" || { echo "no $one" >&2; exit 1; }
done
echo "$pkgver $RUSTFLAGS"
cd "$DIR/source"
for step in prepare build check package; do $step; done
"#;
    let mut shell = Command::new("busybox");
    shell.args(["sh", "-c", script]).env("PATH", path).env("RECIPE", recipe);
    shell.env("pkgdir", dir.path().join("root")).env("DIR", dir.path());
    shell.env("NOTES", dir.path().join("notes")).env("PROGRAM", dir.path().join("program"));
    let ran = shell.output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let said = String::from_utf8_lossy(&ran.stdout);
    assert_eq!(said.trim(), format!("{VERSION} --cfg=io_uring_skip_arch_check"));
    let notes = std::fs::read_to_string(dir.path().join("notes")).unwrap();
    let calls: Vec<&str> = notes.lines().collect();
    assert_eq!(
        calls,
        [
            "fetch --locked",
            "build --frozen --release -p syncline-cli",
            "test --frozen --release -p syncline-image"
        ]
    );
    assert_installed(
        &dir.path().join("root"),
        &[
            "usr/share/man/man1/syncline.1",
            "usr/share/bash-completion/completions/syncline",
            "usr/share/fish/vendor_completions.d/syncline.fish",
            "usr/share/zsh/site-functions/_syncline",
            "usr/share/licenses/syncline/LICENSE-MIT",
            "usr/share/doc/syncline/README.md",
        ],
    );
}

/// Definitions of OpenWrt's build system, as far as the recipe uses them.
const OPENWRT: [(&str, &str); 3] = [
    (
        "rules.mk",
        "INCLUDE_DIR:=$(TOPDIR)/include
INSTALL_DIR:=install -d
INSTALL_BIN:=install -m 755
LN:=ln -sf
",
    ),
    (
        "include/package.mk",
        r#"PKG_BUILD_DIR:=$(TOPDIR)/source
PKG_INSTALL_DIR:=$(TOPDIR)/installed
define BuildPackage
$(foreach one,SECTION CATEGORY TITLE DEPENDS,\
  $(if $(findstring $(one):=,$(Package/$(1))),,$(error no $(one))))
$(if $(Package/$(1)/description),,$(error no description))
package:
	$(Build/Compile)
	$(call Package/$(1)/install,$(TOPDIR)/root)
	@echo "$(PKG_NAME) $(PKG_VERSION) $(PKG_SOURCE) $(CARGO_RUSTFLAGS)"
endef
"#,
    ),
    (
        "feeds/packages/lang/rust/rust-package.mk",
        r#"RUST_ARCH_DEPENDS:=@(x86_64)
RustBinPackage=
define Build/Compile
@cargo install --root $(PKG_INSTALL_DIR) --path "$(PKG_BUILD_DIR)/$(strip $(MAKE_PATH))" --locked
endef
"#,
    ),
];

#[test]
fn the_recipe_for_openwrt_packs_the_program() {
    let dir = scratch();
    let path = sources(dir.path());
    for (name, contents) in OPENWRT {
        let folder = dir.path().join(name).parent().unwrap().to_owned();
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(dir.path().join(name), contents).unwrap();
    }
    let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../packaging/openwrt");
    let mut make = Command::new("make");
    make.args(["-s", "-f", "Makefile", "package"]).arg(format!("TOPDIR={}", dir.path().display()));
    make.current_dir(recipe).env("PATH", path).env("ROOT", dir.path().join("installed"));
    make.env("NOTES", dir.path().join("notes"))
        .env("PROGRAM", dir.path().join("program"))
        .env_remove("MAKEFLAGS");
    let ran = make.output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let said = String::from_utf8_lossy(&ran.stdout);
    let want =
        format!("syncline {VERSION} syncline-{VERSION}.tar.gz --cfg=io_uring_skip_arch_check");
    assert_eq!(said.trim(), want);
    let notes = std::fs::read_to_string(dir.path().join("notes")).unwrap();
    let crate_path = dir.path().join("source/crates/adapters/cli");
    assert!(notes.contains(&format!("--path {} --locked", crate_path.display())), "{notes}");
    assert_installed(&dir.path().join("root"), &[]);
}
