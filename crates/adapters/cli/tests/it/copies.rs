//! Trees through the binary: from the host into an image, out again, from image to image; compared
//! whole, judged by e2fsck and, where there is one, by a kernel mount.

use std::ffi::OsString;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use crate::support::{at, done, file, refused, run, scratch, text};
use syncline_testkit::{
    Compare, DirTree, ImageSpec, KernelMount, Need, TreeManifest, TreeOptions, apply, debugfs,
    e2fsck_clean, gen_tree, mkfs, require,
};

/// A tree on the host. Where the test is root it has device files and foreign owners.
fn tree(dir: &Path, seed: u64, names: usize) -> TreeManifest {
    std::fs::create_dir(dir).expect("scratch space");
    let options =
        TreeOptions { names, root: Need::Root.missing().is_none(), ..TreeOptions::default() };
    apply(&gen_tree(seed, options), &mut DirTree::new(dir)).expect("the tree is made");
    TreeManifest::from_dir(dir).expect("the tree is read")
}

fn words(words: &[&dyn AsRef<std::ffi::OsStr>]) -> Vec<OsString> {
    words.iter().map(|word| word.as_ref().to_owned()).collect()
}

#[test]
fn a_tree_goes_in_and_comes_out_unchanged() {
    if !require("a_tree_goes_in_and_comes_out_unchanged", &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let (source, back) = (dir.path().join("source"), dir.path().join("back"));
    let expected = tree(&source, 7, 800);
    for block_size_bytes in [1024, 4096] {
        let what = format!("{block_size_bytes} B blocks");
        let spec = ImageSpec { block_size_bytes, ..ImageSpec::with_size(256 << 20) };
        let image = mkfs(&spec);
        done(&words(&[&"cp", &"-a", &source, &at(image.path(), "/tree")]));
        e2fsck_clean(image.path()).unwrap();
        done(&words(&[&"check", &image.path()]));
        done(&words(&[&"cp", &"-a", &at(image.path(), "/tree"), &back]));
        let found = TreeManifest::from_dir(&back).unwrap();
        expected.assert_same(&found, Compare::SAME_TREE, &what);
        std::fs::remove_dir_all(&back).unwrap();

        let second = mkfs(&ImageSpec::with_size(256 << 20));
        let target = at(second.path(), "/copy");
        done(&words(&[&"cp", &"-a", &at(image.path(), "/tree"), &target]));
        e2fsck_clean(second.path()).unwrap();
        if require("a_tree_goes_in_and_comes_out_unchanged: kernel", &[Need::Root, Need::Loop]) {
            let mount = KernelMount::new(second.path(), "ro").unwrap();
            let found = TreeManifest::from_dir(&mount.path().join("copy")).unwrap();
            mount.unmount().unwrap();
            expected.assert_same(&found, Compare::SAME_TREE, &format!("{what}, kernel"));
        }
        done(&words(&[&"rm", &"-r", &target]));
        assert_eq!(done(&["ls", &at(second.path(), "/")]), "lost+found\n");
        e2fsck_clean(second.path()).unwrap();
    }
}

#[test]
fn targets_are_found_as_cp_finds_them() {
    if !require("targets_are_found_as_cp_finds_them", &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let (one, two) = (file(dir.path(), "one", "1"), file(dir.path(), "two", "22"));
    let image = mkfs(&ImageSpec::default());
    let at = |path: &str| at(image.path(), path);
    done(&words(&[&"cp", &one, &at("/renamed")]));
    done(&words(&[&"cp", &one, &two, &at("/")]));
    done(&["mkdir", "-p", &at("/a/b")]);
    done(&["cp", &at("/renamed"), &at("/a/b")]);
    done(&["mv", &at("/two"), &at("/a")]);
    assert_eq!(
        done(&["ls", "-R", &at("/")]),
        format!(
            "/:\na\nlost+found\none\nrenamed\n\n/a:\nb\ntwo\n\n/a/b:\nrenamed\n\n/lost+found:\n"
        )
    );
    assert_eq!(done(&["cat", &at("/a/b/renamed"), &at("/a/two")]), "122");
    // Over what is there, but not a file over a directory or the other way round.
    done(&words(&[&"cp", &two, &at("/renamed")]));
    assert_eq!(done(&["cat", &at("/renamed")]), "22");
    let sub = dir.path().join("b");
    std::fs::create_dir(&sub).unwrap();
    let said = run(&words(&[&"cp", &sub, &at("/")]));
    assert!(said.code == 2 && said.err.contains("give -r"), "{said:?}");
    done(&["cp", &at("/one"), &at("/b")]);
    refused(1, &words(&[&"cp", &"-r", &sub, &at("/")]));
    refused(2, &words(&[&"cp", &one, &two, &at("/nowhere")]));
    refused(1, &["mv", "-n", &at("/one"), &at("/renamed")]);
    let host = dir.path().join("into");
    std::fs::create_dir(&host).unwrap();
    done(&words(&[&"cp", &"-r", &at("/"), &host]));
    assert_eq!(std::fs::read(host.join("a/b/renamed")).unwrap(), b"1");
    e2fsck_clean(image.path()).unwrap();
}

#[test]
fn holes_links_and_times() {
    if !require("holes_links_and_times", &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let source = dir.path().join("source");
    std::fs::create_dir(&source).unwrap();
    let sparse = std::fs::File::create(source.join("sparse")).unwrap();
    sparse.set_len(4 << 30).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"island", 3 << 30).unwrap();
    let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 7);
    sparse.set_modified(old).unwrap();
    file(&source, "file", "text");
    std::fs::hard_link(source.join("file"), source.join("again")).unwrap();
    std::os::unix::fs::symlink("file", source.join("link")).unwrap();
    // 32 MiB hold a file of 4 GiB with one block.
    let image = mkfs(&ImageSpec::default());
    let at = |path: &str| at(image.path(), path);
    done(&words(&[&"cp", &"-a", &source, &at("/s")]));
    let stat = done(&["stat", "--extents", &at("/s/sparse")]);
    assert!(stat.contains("Size: 4294967296\tBlocks: 8\t"), "{stat}");
    assert!(stat.contains("Modify: 2001-09-09 01:46:40.000000007 +0000"), "{stat}");
    assert!(stat.contains("3221225472"), "where its data is: {stat}");
    let inodes = done(&["ls", "-i", &at("/s")]);
    let number = |name: &str| {
        let line = inodes.lines().find(|line| line.ends_with(&format!(" {name}")));
        line.and_then(|line| line.split_whitespace().next()).map(str::to_owned).expect("listed")
    };
    assert_eq!(number("file"), number("again"));
    let long = done(&["ls", "-l", &at("/s")]);
    assert!(long.contains("link -> file"), "{long}");
    let human = done(&["ls", "-lh", &at("/s/sparse")]);
    assert!(human.contains(" 4.0G "), "{human}");
    let back = dir.path().join("back");
    done(&words(&[&"cp", &"-a", &at("/s"), &back]));
    let meta = std::fs::metadata(back.join("sparse")).unwrap();
    assert_eq!((meta.len(), meta.modified().unwrap()), (4 << 30, old));
    assert!(meta.blocks() * 512 <= 1 << 20, "{} sectors", meta.blocks());
    let ino = |name: &str| std::fs::metadata(back.join(name)).unwrap().ino();
    assert_eq!(ino("file"), ino("again"));
}

/// Names that only an image can hold must not get out of the directory that is copied to.
#[test]
fn hostile_names_do_not_leave_the_target() {
    if !require("hostile_names_do_not_leave_the_target", &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let image = mkfs(&ImageSpec { features: "^metadata_csum".into(), ..ImageSpec::default() });
    let bait = file(dir.path(), "xx_evil", "evil");
    done(&words(&[&"mkdir", &at(image.path(), "/d")]));
    done(&words(&[&"cp", &bait, &at(image.path(), "/d")]));
    let good = file(dir.path(), "good", "good");
    done(&words(&[&"cp", &good, &at(image.path(), "/d")]));
    let mut bytes = image.bytes();
    let place = bytes.windows(7).rposition(|w| w == b"xx_evil").expect("the name is there");
    bytes[place..place + 7].copy_from_slice(b"../evil");
    std::fs::write(image.path(), bytes).unwrap();
    let target = dir.path().join("target");
    let ran = run(&words(&[&"cp", &"-r", &at(image.path(), "/d"), &target]));
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.err.contains("an invalid file name"), "{}", ran.err);
    assert!(!dir.path().join("evil").exists());
    assert_eq!(std::fs::read(target.join("good")).unwrap(), b"good", "the rest is copied");
}

#[test]
fn a_copy_does_not_swallow_itself() {
    if !require("a_copy_does_not_swallow_itself", &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let image = mkfs(&ImageSpec::default());
    let inside = dir.path().join("it.img");
    std::fs::rename(image.path(), &inside).unwrap();
    file(dir.path(), "other", "other");
    let ran = run(&words(&[&"cp", &"-r", &dir.path(), &at(&inside, "/all")]));
    assert!(ran.code == 1 && ran.err.contains("is the image itself"), "{ran:?}");
    assert_eq!(done(&["ls", &at(&inside, "/all")]), "other\n");
    let ran = run(&words(&[&"cp", &"-r", &at(&inside, "/"), &at(&inside, "/all/below")]));
    assert!(ran.code == 1 && ran.err.contains("part of the target"), "{ran:?}");
    e2fsck_clean(&inside).unwrap();
    std::fs::rename(&inside, image.path()).unwrap();
}

#[test]
fn depth_and_circles_do_no_harm() {
    if !require("depth_and_circles_do_no_harm", &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let image = mkfs(&ImageSpec::default());
    let at = |path: &str| at(image.path(), path);
    let deep = "/d".repeat(500);
    done(&["mkdir", "-p", &at(&deep)]);
    done(&["cp", "-r", &at("/d"), &at("/copy")]);
    assert_eq!(done(&["ls", "-R", &at("/copy")]).matches("/d:\n").count(), 499);
    // Where the host takes no path that long, what fits is copied.
    let long = dir.path().join("n".repeat(200));
    std::fs::create_dir(&long).unwrap();
    let _ = run(&words(&[&"cp", &"-r", &at("/d"), &long]));
    assert!(long.join("d/d/d/d").is_dir());
    done(&["rm", "-r", &at("/d"), &at("/copy")]);
    e2fsck_clean(image.path()).unwrap();

    done(&["mkdir", "-p", &at("/x/y")]);
    let said = debugfs(image.path(), "ln /x /x/y/up\nln /x /x/too\n");
    assert!(!said.contains("not found"), "{said}");
    let ran = run(&words(&[&"cp", &"-r", &at("/x"), &dir.path().join("x")]));
    assert!(ran.code == 3 && ran.err.contains("a directory with two names"), "{ran:?}");
    assert!(dir.path().join("x/y").is_dir());
    let listed = done(&["ls", "-R", &at("/x")]);
    assert!(listed.len() < 1000, "{listed}");
    refused(3, &["rm", "-r", &at("/x")]);
}

/// Options where cp(1) takes them, slashes that mean directories, and links that stay links.
#[test]
fn operands_are_taken_as_by_cp() {
    if !require("operands_are_taken_as_by_cp", &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let (one, tree) = (file(dir.path(), "one", "1"), dir.path().join("dd"));
    std::fs::create_dir(&tree).unwrap();
    file(&tree, "g", "2");
    let image = mkfs(&ImageSpec::default());
    let at = |path: &str| at(image.path(), path);
    done(&words(&[&"cp", &one, &"-p", &at("/x")]));
    done(&words(&[&"cp", &one, &"-r", &tree, &"-p", &at("/")]));
    let back = dir.path().join("back");
    done(&words(&[&"cp", &at("/dd"), &"-a", &back]));
    assert_eq!(std::fs::read(back.join("g")).unwrap(), b"2");
    refused(2, &words(&[&"cp", &one]));
    // A slash at the end.
    let said = refused(1, &words(&[&"cp", &one, &at("/new/")]));
    assert!(said.contains("is not a directory; make it first"), "{said}");
    refused(1, &words(&[&"cp", &one, &at("/x/")]));
    refused(1, &words(&[&"cp", &dir.path().join("one/"), &at("/y")]));
    done(&words(&[&"cp", &"-r", &tree, &at("/new/")]));
    assert_eq!(done(&["ls", &at("/")]), "dd\nlost+found\nnew\none\nx\n");
    // A link in the place of a directory is not followed, and keeps what it is.
    done(&["mv", &at("/dd"), &at("/real")]);
    let _ = debugfs(image.path(), "symlink /dd /real\n");
    let before = done(&["stat", &at("/dd"), &at("/real")]);
    let said = refused(1, &words(&[&"cp", &"-rp", &tree, &at("/")]));
    assert!(said.contains("exists and is not a directory"), "{said}");
    assert_eq!(done(&["stat", &at("/dd"), &at("/real")]), before);
    // Named as the target it is followed, and the directory gets the attributes.
    done(&words(&[&"cp", &"-rp", &tree.join("."), &at("/dd")]));
    assert!(done(&["stat", &at("/dd")]).contains("symbolic link"));
    e2fsck_clean(image.path()).unwrap();
}

/// A remark names the file, not the temporary name that it had.
#[test]
fn remarks_name_files_as_the_user_does() {
    if !require("remarks_name_files_as_the_user_does", &[Need::Root, Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let image = mkfs(&ImageSpec::default());
    done(&words(&[&"cp", &file(dir.path(), "f", "1"), &at(image.path(), "/f")]));
    let all = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(image.path(), all).unwrap();
    let target = dir.path().join("g");
    let arguments = words(&[&"cp", &"-p", &at(image.path(), "/f"), &target]);
    let ran = as_a_user(dir.path()).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(said.contains("/g: owner not kept: ") && !said.contains(".syncline-"), "{said}");
}

/// The program, copied into a directory where everybody may write, for another user than root.
fn as_a_user(dir: &Path) -> std::process::Command {
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o777)).unwrap();
    let program = dir.join("syncline");
    crate::support::copy_program(&crate::support::binary(), &program);
    let mut command = std::process::Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(program);
    command
}

#[test]
fn files_that_cannot_be_read_are_left_out_if_asked() {
    let test = "files_that_cannot_be_read_are_left_out_if_asked";
    if !require(test, &[Need::Root, Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let tree = dir.path().join("etc");
    std::fs::create_dir_all(tree.join("private")).unwrap();
    for name in ["hosts", "shadow", "private/key"] {
        std::fs::write(tree.join(name), name).unwrap();
    }
    for secret in ["shadow", "private"] {
        let none = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(tree.join(secret), none).unwrap();
    }
    let image = dir.path().join("etc.img");
    let import = |options: &[&str]| {
        let mut command = as_a_user(dir.path());
        command.arg("import").args(options).arg(&tree).arg(&image).output().unwrap()
    };
    let ran = import(&[]);
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.code() == Some(1) && !image.exists(), "{said}");
    assert!(said.contains("2 files were not copied") && said.contains("--ignore-failed-read"));
    let ran = import(&["--ignore-failed-read"]);
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && said.contains("2 files were not copied"), "{said}");
    assert!(said.contains("/shadow: permission denied"), "{said}");
    assert_eq!(done(&["ls", text(&image)]).split_whitespace().next(), Some("hosts"));
    e2fsck_clean(&image).unwrap();
    // Into an image that is there.
    let ran = import(&["--ignore-failed-read"]);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    refused(2, &["import", "--ignore-failed-read", "x.tar", text(&image)]);
}
