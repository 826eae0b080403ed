//! C programs use the headers and the shared library, under AddressSanitizer and valgrind; stock
//! e2fsck judges the images that they leave.

mod bindings;
mod flashlite;
mod recorder;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

// So that cargo builds the library, with its C form, before this test.
use syncline_c as _;
use syncline_testkit::{Need, e2fsck_clean, require, skip};

const SANITIZERS: [&str; 2] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
/// Random calls of `hard.c`.
const CALLS: &str = "20000";

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Finds the shared library where cargo puts it: in the directory of this test, or its parent.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let mut files = test.ancestors().skip(1).take(2).map(|dir| dir.join("libsyncline_c.so"));
    files.find(|file| file.is_file()).unwrap()
}

/// Reports whether the program is there; the test is skipped otherwise.
fn there(test: &str, program: &str) -> bool {
    let there = Command::new(program).arg("--version").output();
    let there = there.is_ok_and(|ran| ran.status.success());
    if !there {
        skip(test, &format!("needs {program}; install it"));
    }
    there
}

fn scratch() -> tempfile::TempDir {
    let dir = tempfile::tempdir_in(syncline_testkit::scratch_dir()).unwrap();
    // The names that the linker and the loader ask for.
    for name in ["libsyncline.so", "libsyncline.so.0"] {
        std::os::unix::fs::symlink(library(), dir.path().join(name)).unwrap();
    }
    dir
}

fn compile(source: &Path, dir: &Path, more: &[&str]) -> PathBuf {
    let program = dir.join(source.file_stem().unwrap());
    let compiled = Command::new("cc")
        .args(["-std=gnu99", "-Wall", "-Wextra", "-Werror", "-g", "-O1", "-pthread"])
        .args(more)
        .arg("-I")
        .arg(here("include"))
        .arg(source)
        .arg("-o")
        .arg(&program)
        .arg(library())
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    program
}

fn run(program: &mut Command, dir: &Path) -> Output {
    let ran = program.current_dir(dir).env("LD_LIBRARY_PATH", dir).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{program:?}: {:?}\n{said}", ran.status);
    ran
}

/// Does `work` with volumes in the process of the C program, and in a helper of it.
fn in_each_process(work: impl Fn(&dyn Fn(&Path) -> Command)) {
    work(&|program| Command::new(program));
    let helper = syncline_testkit::program("syncline", "syncline-cli");
    let options = format!("isolate={}", helper.display());
    work(&|program| {
        let mut command = Command::new(program);
        command.env("SYNCLINE_TEST_OPTIONS", &options);
        command
    });
}

#[test]
fn every_function_answers_under_address_sanitizer() {
    const NAME: &str = "every_function_answers_under_address_sanitizer";
    if !there(NAME, "cc") || !require(NAME, &[Need::E2fsck]) {
        return;
    }
    in_each_process(|command| {
        let dir = scratch();
        let program = compile(&here("tests/it/every.c"), dir.path(), &SANITIZERS);
        run(command(&program).arg("card.img"), dir.path());
        e2fsck_clean(&dir.path().join("card.img")).unwrap();
    });
}

#[test]
fn nothing_crashes_under_address_sanitizer() {
    const NAME: &str = "nothing_crashes_under_address_sanitizer";
    if !there(NAME, "cc") || !require(NAME, &[Need::E2fsck]) {
        return;
    }
    in_each_process(|command| {
        let dir = scratch();
        let program = compile(&here("tests/it/hard.c"), dir.path(), &SANITIZERS);
        run(command(&program).args(["card.img", CALLS]), dir.path());
        e2fsck_clean(&dir.path().join("card.img")).unwrap();
        e2fsck_clean(&dir.path().join("child.img")).unwrap();
    });
}

#[test]
fn valgrind_finds_nothing() {
    const NAME: &str = "valgrind_finds_nothing";
    if !there(NAME, "cc") || !there(NAME, "valgrind") || !require(NAME, &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let program = compile(&here("tests/it/every.c"), dir.path(), &[]);
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--quiet", "--error-exitcode=9", "--leak-check=full"]);
    run(valgrind.arg(program).arg("card.img"), dir.path());
    e2fsck_clean(&dir.path().join("card.img")).unwrap();
}

#[test]
fn disks_of_other_programs_are_read() {
    const NAME: &str = "disks_of_other_programs_are_read";
    if ["cc", "gzip", "qemu-img"].iter().any(|program| !there(NAME, program)) {
        return;
    }
    let dir = scratch();
    let program = compile(&here("tests/it/container.c"), dir.path(), &SANITIZERS);
    let image = syncline_testkit::mkfs(&syncline_testkit::ImageSpec::default());
    let shell = |command: &str| {
        let mut shell = Command::new("sh");
        let ran = shell.args(["-ec", command]).current_dir(dir.path()).status();
        assert!(ran.unwrap().success(), "{command}");
    };
    shell(&format!("cp {} 'ba,se.img'; echo hello > motd", image.path().display()));
    let debugfs = Command::new("debugfs")
        .args(["-w", "-R", "write motd motd", "ba,se.img"])
        .current_dir(dir.path())
        .output();
    assert!(debugfs.unwrap().status.success());
    shell(
        "gzip -1c ba,se.img > packed; size=$(stat -c %s ba,se.img); \
         qemu-img create -q -u -f qcow2 -F raw -b /no/such top.qcow2 $size",
    );
    for (image, options, said) in [
        ("packed", "ro", "hello"),
        ("packed", "", "95 packed: the image is compressed"),
        ("top.qcow2", r#"ro,backing="ba,se.img""#, "hello"),
        ("top.qcow2", "ro", "95 top.qcow2: the qcow2 is over the file `/no/such`"),
        ("top.qcow2", "ro,backing=none", "2 "),
        ("ba,se.img", "ro,backing=packed", "22 ba,se.img: it is no qcow2"),
        ("top.qcow2", "ro,backing=", "22 backing=: name the file"),
    ] {
        let ran = run(Command::new(&program).args([image, options]), dir.path());
        let out = String::from_utf8_lossy(&ran.stdout);
        assert!(out.starts_with(said), "{image} {options}: {out}");
    }
}

#[test]
fn the_example_for_an_event_loop_runs() {
    const NAME: &str = "the_example_for_an_event_loop_runs";
    if !there(NAME, "cc") || !require(NAME, &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let program = compile(&here("examples/event_loop.c"), dir.path(), &[]);
    for round in ["one", "two"] {
        let feed = format!("printf '{round} ' | {} card.img", program.display());
        run(Command::new("sh").arg("-c").arg(feed), dir.path());
    }
    e2fsck_clean(&dir.path().join("card.img")).unwrap();
    let log = syncline_testkit::debugfs(&dir.path().join("card.img"), "cat /log");
    assert!(log.contains("one two "), "{log}");
}

#[test]
fn the_examples_run() {
    const NAME: &str = "the_examples_run";
    if !there(NAME, "cc") || !require(NAME, &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let expected = [
        (
            "files",
            "record 42 begins with 42\nthe last record begins with 99\ndata begins at 8192\n",
        ),
        ("tree", "/site/main -> index\nmode 640, 2 names, written in 1000000000\n"),
        ("images", "library 0"),
        ("build", "21 MiB\n"),
    ];
    for (name, begins) in expected {
        let program = compile(&here(&format!("examples/{name}.c")), dir.path(), &SANITIZERS);
        let image = format!("{name}.img");
        let ran = run(Command::new(program).arg(&image), dir.path());
        let said = String::from_utf8(ran.stdout).unwrap();
        assert!(said.starts_with(begins), "{name}: {said}");
        e2fsck_clean(&dir.path().join(image)).unwrap();
    }
}

/// The blocks of code in `language` of a document.
fn blocks(document: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    let starts = document.match_indices(&fence).map(|(at, fence)| at + fence.len());
    let block = |at: usize| document[at..].split("```").next().unwrap().to_owned();
    starts.map(block).collect()
}

#[test]
fn the_examples_of_the_document_run() {
    const NAME: &str = "the_examples_of_the_document_run";
    if !there(NAME, "cc") || !require(NAME, &[Need::E2fsck]) {
        return;
    }
    let document = std::fs::read_to_string(here("../../../docs/LIBRARIES.md")).unwrap();
    let blocks = blocks(&document, "c");
    assert!(!blocks.is_empty());
    for (number, block) in blocks.iter().enumerate() {
        let dir = scratch();
        let source = dir.path().join(format!("example{number}.c"));
        std::fs::write(&source, block).unwrap();
        let program = compile(&source, dir.path(), &SANITIZERS);
        run(&mut Command::new(program), dir.path());
    }
}

/// A reader of the first example learns why each of its calls failed: the sentence is kept by the
/// handle that the call got.
#[test]
fn the_example_says_what_failed() {
    const NAME: &str = "the_example_says_what_failed";
    if !there(NAME, "cc") {
        return;
    }
    let document = std::fs::read_to_string(here("../../../docs/LIBRARIES.md")).unwrap();
    let example = blocks(&document, "c").swap_remove(0);
    for (number, (from, to, said)) in [
        ("mkfs(\"card.img\"", "mkfs(\"none/card.img\"", "no such file or directory"),
        ("open(\"card.img\"", "open(\"other.img\"", "no such file or directory"),
        ("today\", SYNCLINE_WRITE", "today/x\", SYNCLINE_WRITE", "no such file or directory"),
        (
            "syncline_file_write(file, ",
            "syncline_file_write(file, many, sizeof many) < 0 || syncline_file_write(file, ",
            "no space left",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let changed =
            example.replace(from, to).replace("int main", "char many[1 << 27];\nint main");
        assert!(changed.contains(to), "{from}");
        let dir = scratch();
        let source = dir.path().join(format!("failing{number}.c"));
        std::fs::write(&source, changed).unwrap();
        let program = compile(&source, dir.path(), &SANITIZERS);
        let mut program = Command::new(program);
        program.current_dir(dir.path()).env("LD_LIBRARY_PATH", dir.path());
        let ran = program.output().unwrap();
        let stderr = String::from_utf8_lossy(&ran.stderr).to_lowercase();
        assert!(ran.status.code() == Some(1) && stderr.contains(said), "{to}: {stderr}");
    }
}

/// `make install` and the packages have the library from `packaging/install-library.sh`.
#[test]
fn an_installed_library_is_found_by_pkg_config() {
    const NAME: &str = "an_installed_library_is_found_by_pkg_config";
    let there = |program: &&str| there(NAME, program);
    if !["cc", "pkg-config"].iter().all(there) || !require(NAME, &[Need::E2fsck]) {
        return;
    }
    let dir = tempfile::tempdir_in(syncline_testkit::scratch_dir()).unwrap();
    let root = dir.path().join("root");
    let mut install = Command::new("sh");
    install.arg(here("../../../packaging/install-library.sh")).args(["/opt/mine", "lib/here"]);
    run(install.arg(&root).arg(library().parent().unwrap()), dir.path());

    let libraries = root.join("opt/mine/lib/here");
    let examples = root.join("opt/mine/share/doc/libsyncline-dev/examples");
    let script = format!(
        "cc {}/files.c $(pkg-config --cflags --libs syncline) -o example && ./example card.img &&\
         cc {} $(pkg-config --cflags --libs syncline) -o download && ./download &&\
         pkg-config --modversion syncline",
        examples.display(),
        here("tests/it/download.c").display()
    );
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(script).env("PKG_CONFIG_PATH", libraries.join("pkgconfig"));
    shell.env("PKG_CONFIG_SYSROOT_DIR", &root).current_dir(dir.path());
    let ran = shell.env("LD_LIBRARY_PATH", &libraries).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert!(
        String::from_utf8_lossy(&ran.stdout).ends_with(concat!(env!("CARGO_PKG_VERSION"), "\n"))
    );
    e2fsck_clean(&dir.path().join("card.img")).unwrap();
}

#[test]
fn the_headers_are_cpp_too() {
    const NAME: &str = "the_headers_are_cpp_too";
    if !there(NAME, "c++") {
        return;
    }
    for header in ["syncline.h", "flashlite.h", "syncline_recorder.h"] {
        let checked = Command::new("c++")
            .args(["-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-x", "c++"])
            .arg(here("include").join(header))
            .output()
            .unwrap();
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    }
}

/// Names of functions in a C text: `syncline_` words before a parenthesis.
fn functions(text: &str) -> BTreeSet<String> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let calls = text.match_indices('(').map(|(at, _)| &text[..at]);
    let words = calls.map(|before| before.rsplit(|c: char| !is_word(c)).next().unwrap_or(""));
    words.filter(|word| word.starts_with("syncline_")).map(str::to_owned).collect()
}

#[test]
fn every_function_of_the_header_is_exported_tested_and_shown() {
    let read = |path: &str| std::fs::read_to_string(here(path)).unwrap();
    let declared = functions(&read("include/syncline.h"));
    assert!(declared.len() > 40, "{declared:?}");
    let called = functions(&(read("tests/it/every.c") + &read("tests/it/hard.c")));
    let not_called: Vec<_> = declared.difference(&called).collect();
    assert!(not_called.is_empty(), "{not_called:?}: call them in tests/it/every.c");
    let document = read("../../../docs/LIBRARIES.md");
    let mut shown = blocks(&document, "c").concat();
    for name in ["event_loop", "files", "tree", "images", "build"] {
        assert!(document.contains(&format!("`{name}.c`")), "LIBRARIES.md does not name {name}.c");
        shown += &read(&format!("examples/{name}.c"));
    }
    let shown = functions(&shown);
    let not_shown: Vec<_> = declared.difference(&shown).collect();
    assert!(not_shown.is_empty(), "{not_shown:?}: show them in an example that LIBRARIES.md names");
    let mut exported = BTreeSet::new();
    for file in ["build", "volumes", "files", "names", "dirs", "tools"] {
        let source = read(&format!("src/{file}.rs"));
        for (at, what) in source.match_indices("\n    fn syncline_") {
            let name = &source[at + what.len() - "syncline_".len()..];
            exported.insert(name.split('(').next().unwrap().to_owned());
        }
    }
    assert_eq!(declared, exported);
}
