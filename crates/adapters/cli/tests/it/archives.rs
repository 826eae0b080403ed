//! Archives of every type, dialect and oddity: what GNU tar, and bsdtar where it is installed,
//! unpack is what `import` makes of them, read through a kernel mount; damaged ones are refused.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::members::{End, GNU, Head, USTAR, V7, archive, member, pax, random_archive};
use crate::support::{at, done, refused, run, scratch, text};

use syncline_testkit::{
    Compare, FuzzRounds, ImageSpec, KernelMount, Need, Random, TreeManifest, e2fsck_clean, mkfs,
    require, skip,
};

fn shell(command: &str) -> bool {
    let ran = Command::new("sh").args(["-c", command]).output().unwrap();
    ran.status.success()
}

fn has(program: &str) -> bool {
    shell(&format!("command -v {program} >/dev/null"))
}

/// A tree as a manifest, without its root: an image has lost+found in it.
fn manifest(dir: &Path) -> TreeManifest {
    let mut found = TreeManifest::from_dir(dir).unwrap();
    found.entries.remove(&b""[..]);
    found
}

/// The tree that a program unpacks; none if it complains.
fn unpacked(program: &str, archive: &Path, scratch: &Path) -> Option<TreeManifest> {
    let into = scratch.join("judge");
    let _ = std::fs::remove_dir_all(&into);
    std::fs::create_dir(&into).unwrap();
    let options = match program {
        "tar" => "--xattrs --xattrs-include='*' --acls --numeric-owner --warning=no-timestamp",
        _ => "--acls --xattrs --numeric-owner",
    };
    let (into_text, archive) = (text(&into), text(archive));
    let command = format!("umask 022; {program} {options} -xpf {archive} -C {into_text}");
    let ran = Command::new("sh").args(["-c", &command]).output().unwrap();
    // bsdtar leaves out what it does not understand, and ends with 0.
    let damaged = String::from_utf8_lossy(&ran.stderr).contains("Damaged");
    (ran.status.success() && !damaged).then(|| manifest(&into))
}

/// The tree that `import` makes, through a kernel mount.
fn imported(archive: &Path, scratch: &Path) -> TreeManifest {
    let image = scratch.join("judged.img");
    let _ = std::fs::remove_file(&image);
    // Remarks are allowed.
    let ran = run(&["import", text(archive), text(&image)]);
    assert_eq!(ran.code, 0, "{ran:?}");
    e2fsck_clean(&image).unwrap();
    let mount = KernelMount::new(&image, "ro").unwrap();
    let found = manifest(mount.path());
    mount.unmount().unwrap();
    found
}

/// Compares with each program that unpacks the archive without a complaint; returns how many did.
fn judged(archive: &Path, scratch: &Path, what: &str) -> usize {
    let found = imported(archive, scratch);
    let mut judges = 0;
    for program in ["tar", "bsdtar"].into_iter().filter(|program| has(program)) {
        let Some(mut expected) = unpacked(program, archive, scratch) else { continue };
        let mut found = found.clone();
        if program == "tar" {
            // It sets a directory's time when the next member is outside of it: what comes into it
            // later changes the time again. bsdtar sets all at the end.
            for entry in expected.entries.values_mut().chain(found.entries.values_mut()) {
                if entry.is_dir() {
                    entry.stat.mtime = Default::default();
                }
            }
        }
        expected.assert_same(&found, Compare::SAME_TREE, &format!("{what}, {program}"));
        judges += 1;
    }
    judges
}

fn can_judge(test: &str) -> bool {
    if !has("bsdtar") {
        skip(&format!("{test}: bsdtar"), "needs bsdtar; install libarchive-tools");
    }
    require(test, &[Need::Root, Need::Loop, Need::E2fsck])
}

/// Name of the oddity and its members.
fn oddities() -> Vec<(String, Vec<Vec<u8>>)> {
    let (file, after) = (member(b'0', b"f", b"", b"hello"), member(b'0', b"z", b"", b"x"));
    let dir = |name: &[u8], mode| Head { mode, ..Head::new(b'5', name) }.member(b"");
    let mut cases: Vec<(String, Vec<Vec<u8>>)> = Vec::new();
    for magic in [USTAR, GNU, V7] {
        for kind in [b'1', b'2', b'3', b'4', b'5', b'6'] {
            let link: &[u8] = if kind <= b'2' { b"f" } else { b"" };
            let head = Head { size: Some(700), link, magic, ..Head::new(kind, b"n") };
            let name = format!("a size on the type {} of {magic:?}", char::from(kind));
            cases.push((name, vec![file.clone(), head.member(b""), after.clone()]));
        }
        for mtime in [-1_i64, -86_400 * 400, 0, 2_000_000_000, 8_000_000_000] {
            let head = Head { mtime, magic, binary: true, ..Head::new(b'0', b"f") };
            cases.push((format!("the time {mtime} in base 256"), vec![head.member(b"x")]));
        }
    }
    let mut add = |name: &str, members: Vec<Vec<u8>>| cases.push((name.to_owned(), members));
    add("a hard link to itself", vec![file.clone(), member(b'1', b"f", b"f", b""), after.clone()]);
    let (g, f) = (member(b'1', b"g", b"f", b""), member(b'1', b"f", b"g", b""));
    add("links in a circle", vec![file.clone(), g.clone(), f, after.clone()]);
    add("a hard link to a symbolic link", vec![member(b'2', b"f", b"no", b""), g, after.clone()]);
    let twice = vec![dir(b"d/", 0o700), member(b'0', b"d/f", b"", b""), dir(b"d/", 0o1775)];
    add("a directory twice", twice);
    let dump = Head { magic: GNU, ..Head::new(b'D', b"d/") }.member(b"Yf\0Nx\0\0");
    add("a directory of tar -g", vec![dump, member(b'0', b"d/f", b"", b"1"), after.clone()]);
    add("a volume's label", vec![member(b'V', b"label", b"", b""), after.clone()]);
    add("an unknown type", vec![member(b'Z', b"n", b"", b"data"), after.clone()]);
    add("contiguous", vec![member(b'7', b"n", b"", b"data"), after.clone()]);
    let link = member(b'2', b"d", b"f", b"");
    add("an empty directory becomes a link", vec![dir(b"d/", 0o755), link.clone(), after.clone()]);
    let hard = member(b'1', b"d", b"f", b"");
    add("and a hard link", vec![file.clone(), dir(b"d/", 0o755), hard, after.clone()]);
    add("a link becomes a directory", vec![link, dir(b"d/", 0o711), after.clone()]);
    let old = Head { magic: V7, size: Some(300), ..Head::new(0, b"d/") };
    add("a directory before POSIX", vec![old.member(b""), after.clone()]);
    let (up, out) = (member(b'2', b"a", b"../x", b""), member(b'2', b"b", b"/etc/passwd", b""));
    add("links that lead out", vec![up, out, after.clone()]);
    add("absolute names", vec![member(b'0', b"/f", b"", b"1"), member(b'0', b"//g", b"", b"2")]);
    let empty = pax(&[("path", b"other"), ("path", b""), ("mtime", b"")]);
    add("records that are taken back", vec![[empty, file.clone()].concat(), after.clone()]);
    let time = pax(&[("mtime", b"-1"), ("uid", b"3000000"), ("gid", b"4000000000")]);
    add("records of PAX", vec![[time, file.clone()].concat(), after.clone()]);
    let signed = Head { signed_sum: true, mode: 0o600, ..Head::new(b'0', "é".as_bytes()) };
    add("a sum of signed bytes", vec![signed.member(b"1"), after.clone()]);
    let acls = pax(&[
        ("SCHILY.acl.access", b"user::rw-,group::r--,other::r--"),
        ("SCHILY.acl.default", b"user::rwx,user:5:r--,group::r-x,mask::r-x,other::---"),
    ]);
    let (link, dir_too) = (member(b'2', b"l", b"f", b""), dir(b"d/", 0o755));
    let each = [file.clone(), link, dir_too].map(|member| [acls.clone(), member].concat());
    add("default ACLs of everything", [&each[..], std::slice::from_ref(&after)].concat());
    let sparse = |records: &[(&str, &[u8])]| [pax(records), member(b'0', b"s", b"", b"abcd")];
    let map: [(&str, &[u8]); 3] = [
        ("GNU.sparse.size", b"9000"),
        ("GNU.sparse.numblocks", b"2"),
        ("GNU.sparse.map", b"0,2,8000,2"),
    ];
    add("a sparse map of 0.1", vec![sparse(&map).concat(), after.clone()]);
    add("a lone block of zeros", vec![file, vec![0; 512], after]);
    cases
}

#[test]
fn oddities_give_the_tree_that_tar_gives() {
    let test = "oddities_give_the_tree_that_tar_gives";
    if !can_judge(test) {
        return;
    }
    let dir = scratch();
    let path = dir.path().join("a.tar");
    for (name, members) in oddities() {
        std::fs::write(&path, archive(&members, End::Blocks)).unwrap();
        assert!(judged(&path, dir.path(), &name) > 0, "{name}: nobody unpacks it");
    }
}

#[test]
fn generated_archives_give_the_tree_that_tar_gives() {
    let test = "generated_archives_give_the_tree_that_tar_gives";
    if !can_judge(test) {
        return;
    }
    let dir = scratch();
    let path = dir.path().join("a.tar");
    let (mut judges, mut rounds) = (0, 0);
    for seed in FuzzRounds::at_least(200) {
        std::fs::write(&path, random_archive(&mut Random::new(seed))).unwrap();
        judges += judged(&path, dir.path(), &format!("seed {seed}"));
        rounds += 1;
    }
    println!("{judges} verdicts of {rounds} rounds");
    assert!(judges > rounds * 3 / 4, "{judges} verdicts of {rounds} rounds");
}

/// Attributes, ACLs and holes as both programs write them.
#[test]
fn dialects_of_both_programs_are_one_tree() {
    let test = "dialects_of_both_programs_are_one_tree";
    if !can_judge(test) {
        return;
    }
    if !has("setfacl") || !has("setfattr") {
        return skip(test, "needs setfacl and setfattr; install acl and attr");
    }
    let dir = scratch();
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(tree.join("d")).unwrap();
    let (t, sparse) = (text(&tree), tree.join("sparse"));
    std::fs::write(tree.join("f"), "data").unwrap();
    let file = std::fs::File::create(&sparse).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"island", 3 << 20).unwrap();
    file.set_len(5 << 20).unwrap();
    assert!(shell(&format!(
        "cd {t} && chmod 640 f && setfacl -m u:1234:rwx,g:77:r,u:root:r,m:rw f &&
         setfacl -m u:5:r-x,d:u:9:rwx,d:g::r d && setfattr -n user.a=b%25 -v '1=2' f &&
         setfattr -n trusted.x -v 0x0001ff0a f && touch -d 1969-12-31T01:02:03.5Z f d"
    )));
    let expected = manifest(&tree);
    let path = dir.path().join("a.tar");
    let gnu = "tar --acls --xattrs --xattrs-include='*'";
    let all = [
        "bsdtar --acls --xattrs --format=pax".to_owned(),
        "bsdtar --acls --xattrs --format=pax --options=xattrheader=LIBARCHIVE".to_owned(),
        "bsdtar --acls --xattrs --format=pax --options=xattrheader=SCHILY --zstd".to_owned(),
        "bsdtar --acls --xattrs --format=pax --lz4".to_owned(),
        format!("{gnu} --numeric-owner --format=posix -S"),
        format!("{gnu} --format=posix --sparse-version=0.0 -S"),
        format!("{gnu} --format=posix --sparse-version=0.1 -S"),
        format!("{gnu} --format=posix -j"),
        format!("{gnu} --format=posix -J"),
        format!("{gnu} --format=posix -z"),
    ];
    for program in all.iter().filter(|all| !all.starts_with("bsdtar") || has("bsdtar")) {
        assert!(shell(&format!("cd {t} && {program} -cf {} .", text(&path))), "{program}");
        let found = imported(&path, dir.path());
        // bsdtar writes a fraction before 1970 as if it came after it.
        let mtimes = program.starts_with("tar");
        let how = Compare { mtimes, ..Compare::SAME_TREE };
        expected.assert_same(&found, how, program);
    }
    // And back, what GNU tar wrote last: with --acls alone, as people have it.
    let image = dir.path().join("judged.img");
    done(&["export", text(&image), "-o", text(&path)]);
    let plain = |mut tree: TreeManifest| {
        for entry in tree.entries.values_mut() {
            entry.xattrs.retain(|name, _| name.starts_with(b"system.posix_acl"));
        }
        tree
    };
    for program in ["tar --acls -xpf", "bsdtar --acls -xpf"] {
        if program.starts_with("bsdtar") && !has("bsdtar") {
            continue;
        }
        let back = dir.path().join("back");
        std::fs::create_dir(&back).unwrap();
        assert!(shell(&format!("{program} {} -C {}", text(&path), text(&back))), "{program}");
        let how = Compare { mtimes: program.starts_with("tar"), ..Compare::SAME_TREE };
        plain(expected.clone()).assert_same(&plain(manifest(&back)), how, program);
        std::fs::remove_dir_all(&back).unwrap();
    }
    assert!(shell(&format!("rm -rf {0}/q && mkdir {0}/q", text(dir.path()))));
    let whole = unpacked("tar", &path, dir.path()).unwrap();
    expected.assert_same(&whole, Compare::SAME_TREE, "export with everything");
}

#[test]
fn an_acl_that_is_not_kept_grants_nobody_more() {
    let test = "an_acl_that_is_not_kept_grants_nobody_more";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let (path, image) = (dir.path().join("a.tar"), dir.path().join("a.img"));
    let acl = b"user::rw-,user:no-such-user-here:rwx,group::---,mask::rwx,other::---";
    let head = Head { mode: 0o670, ..Head::new(b'0', b"f") };
    let members = [[pax(&[("SCHILY.acl.access", acl)]), head.member(b"secret")].concat()];
    std::fs::write(&path, archive(&members, End::Blocks)).unwrap();
    let ran = run(&["import", text(&path), text(&image)]);
    assert!(ran.code == 0 && ran.err.contains("ACL not kept: this system has no"), "{ran:?}");
    assert!(done(&["ls", "-l", &at(&image, "/f")]).starts_with("-rw------- "));
}

#[test]
fn members_that_cannot_be_kept_are_refused_and_cost_nothing() {
    let test = "members_that_cannot_be_kept_are_refused_and_cost_nothing";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let path = dir.path().join("a.tar");
    let image = mkfs(&ImageSpec::default());
    let import = |members: &[Vec<u8>]| {
        std::fs::write(&path, archive(members, End::Blocks)).unwrap();
        run(&["import", text(&path), text(image.path())])
    };
    let first = [member(b'0', b"f", b"", b"kept"), member(b'5', b"d", b"", b"")];
    assert_eq!(import(&first).code, 0);
    for (members, code, said) in [
        (vec![member(b'1', b"f", b"gone", b"")], 1, "a hard link to /gone, which is missing"),
        (vec![member(b'1', b"f", b"d", b"")], 1, "a hard link to the directory /d"),
        (vec![member(b'0', b"d/x", b"", b""), member(b'2', b"d", b"f", b"")], 1, "has a directory"),
        (vec![member(b'0', b"lost+found", b"", b"")], 1, "has a directory"),
        (vec![member(b'M', b"f", b"", b"x")], 4, "multi-volume"),
        (vec![member(b'N', b"f", b"", b"x")], 4, "old type `N`"),
        (vec![member(b'0', b"", b"", b"x")], 3, "without a name"),
        (vec![member(b'0', b"./", b"", b""), member(b'0', b".", b"", b"x")], 3, "without a name"),
    ] {
        let ran = import(&members);
        assert!(ran.code == code && ran.err.contains(said), "{said}: {ran:?}");
        assert_eq!(done(&["cat", &at(image.path(), "/f")]), "kept", "{said}");
        e2fsck_clean(image.path()).unwrap();
    }
}

#[test]
fn streams_that_do_not_verify_are_refused_and_leave_no_image() {
    let test = "streams_that_do_not_verify_are_refused_and_leave_no_image";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let (plain, image) = (dir.path().join("a.tar"), dir.path().join("a.img"));
    let mut random = Random::new(3);
    let data: Vec<u8> = (0..9000).map(|_| random.bits() as u8).collect();
    std::fs::write(&plain, archive(&[member(b'0', b"f", b"", &data)], End::Record)).unwrap();
    for (program, padding) in [
        ("gzip -9nc", 0),
        ("zstd -qc --check", 3),
        ("xz -c", 0),
        ("bzip2 -c", 3),
        ("lz4 -qc --content-size -BX", 3),
    ] {
        if !has(program.split(' ').next().unwrap()) {
            skip(test, &format!("needs {program}"));
            continue;
        }
        let command = format!("{program} {}", text(&plain));
        let packed = Command::new("sh").args(["-c", &command]).output().unwrap().stdout;
        let broken = dir.path().join("broken");
        let import = |bytes: &[u8]| {
            std::fs::write(&broken, bytes).unwrap();
            let _ = std::fs::remove_file(&image);
            let ran = run(&["import", text(&broken), text(&image)]);
            assert_eq!(image.exists(), ran.code == 0, "{ran:?}");
            ran
        };
        let refused = |bytes: &[u8], what: &str| {
            let ran = import(bytes);
            // Bits that fill up a byte mean nothing.
            if ran.code == 0 && what.starts_with("a bit") {
                return assert!(run(&["cat", &at(&image, "/f")]).out == data, "{program}, {what}");
            }
            assert!(ran.code == 3 && ran.err.contains("is damaged"), "{program}, {what}: {ran:?}");
        };
        assert_eq!(import(&packed).code, 0);
        let len = packed.len();
        // A gzip header's time, flags of speed and system are not covered by anything.
        let places = (10..20).chain(len - 12..len).chain((0..20).map(|n| 20 + n * (len - 40) / 20));
        for place in places {
            let mut flipped = packed.clone();
            flipped[place] ^= 1 << random.index(8);
            refused(&flipped, &format!("a bit of byte {place}"));
        }
        for cut in [1, 2, 4, 7, 8, 9, 100] {
            refused(&packed[..len - cut], &format!("cut by {cut}"));
        }
        refused(&[&packed[..], b"junk"].concat(), "bytes behind it");
        assert_eq!(import(&[&packed[..], &packed].concat()).code, 0, "{program}: two of them");
        let mut second = packed.clone();
        second[len / 2] ^= 4;
        refused(&[&packed[..], &second].concat(), "a second one behind the archive's end");
        assert_eq!(import(&[&packed[..], &[0; 700]].concat()).code, padding, "{program}: zeros");
    }
}

#[test]
fn a_program_that_pipes_an_archive_in_ends_well() {
    let test = "a_program_that_pipes_an_archive_in_ends_well";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let bytes = archive(&[member(b'0', b"f", b"", b"1")], End::Blocks);
    for (name, packed) in [("plain", bytes.clone()), ("gzip", gzip(&bytes))] {
        let image = dir.path().join(name);
        let mut ran = crate::support::binary();
        let ran = ran.args(["import", "--size", "16M", "-", text(&image)]);
        let mut ran = ran.stdin(Stdio::piped()).spawn().unwrap();
        let mut pipe = ran.stdin.take().unwrap();
        // More behind the archive's end than a pipe holds.
        let written = std::io::Write::write_all(&mut pipe, &packed).and_then(|()| match name {
            "plain" => std::io::Write::write_all(&mut pipe, &vec![0; 4 << 20]),
            _ => Ok(()),
        });
        drop(pipe);
        assert!(ran.wait().unwrap().success() && written.is_ok(), "{name}: {written:?}");
        assert_eq!(done(&["cat", &at(&image, "/f")]), "1");
    }
    // A stream of unknown size needs no size.
    let (pipe, image) = (dir.path().join("pipe"), dir.path().join("image"));
    let archive = dir.path().join("a.tar");
    std::fs::write(&archive, &bytes).unwrap();
    assert!(shell(&format!("mkfifo {}", text(&pipe))));
    let fed = format!("cat {} > {}", text(&archive), text(&pipe));
    let mut feeder = Command::new("sh").args(["-c", &fed]).spawn().unwrap();
    done(&["import", text(&pipe), text(&image)]);
    assert!(feeder.wait().unwrap().success());
    e2fsck_clean(&image).unwrap();
    assert_eq!(done(&["cat", &at(&image, "/f")]), "1");
}

/// Files that are cut by the end of a volume, also in their headers, in each format of GNU tar.
#[test]
fn volumes_of_gnu_tar_are_one_archive() {
    let dir = scratch();
    let (tree, image) = (dir.path().join("tree"), dir.path().join("image"));
    std::fs::create_dir_all(tree.join("d")).unwrap();
    let mut random = Random::new(5);
    let files = [("big", 300_000), ("small", 5000), ("d/x", 5001), ("none", 0)];
    let files = files.map(|(name, len)| {
        let data: Vec<u8> = (0..len).map(|_| random.bits() as u8).collect();
        std::fs::write(tree.join(name), &data).unwrap();
        (name, data)
    });
    for format in ["gnu", "oldgnu", "posix"] {
        for kib in (20..120).step_by(10) {
            let names: Vec<String> =
                (0..20).map(|n| format!("{}{n}", text(&dir.path().join(format)))).collect();
            names.iter().for_each(|name| drop(std::fs::remove_file(name)));
            let list: String = names.iter().map(|name| format!(" -f {name}")).collect();
            let command =
                format!("cd {} && tar -cML {kib} -V label --format={format}{list}", text(&tree));
            assert!(shell(&format!("{command} big small d none")), "{format} {kib}");
            let made: Vec<&str> =
                names.iter().map(String::as_str).filter(|name| Path::new(name).exists()).collect();
            let import = |volumes: &[&str]| {
                let _ = std::fs::remove_file(&image);
                run(&[&["import", "-M"], volumes, &[text(&image)]].concat())
            };
            let ran = import(&made);
            assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{format} {kib}");
            for (name, data) in &files {
                assert!(run(&["cat", &at(&image, &format!("/{name}"))]).out == *data, "{name}");
            }
            let missing = [&made[..1], &made[2..]].concat();
            let swapped = [&made[..1], &[made[2], made[1]], &made[3..]].concat();
            for volumes in [&missing[..], &swapped, &made[..1]] {
                let ran = import(volumes);
                assert!(ran.code == 3 && !image.exists(), "{format} {kib}: {ran:?}");
            }
        }
    }
}

/// Members that are left out, owners, and links that stay, as GNU tar has them.
#[test]
fn exclude_and_kept_links_mean_what_they_mean_for_gnu_tar() {
    let test = "exclude_and_kept_links_mean_what_they_mean_for_gnu_tar";
    if !can_judge(test) {
        return;
    }
    let dir = scratch();
    let path = dir.path().join("a.tar");
    let names =
        ["a/", "a/b/", "a/b/c.o", "a/b.o", "b/", "b/a", "b/[x", "b/*", "co", "d.o/", "d.o/e"];
    let one = |name: &&str| match name.ends_with('/') {
        true => Head { mode: 0o755, ..Head::new(b'5', name.as_bytes()) }.member(b""),
        false => member(b'0', name.as_bytes(), b"", b"1"),
    };
    std::fs::write(&path, archive(&names.iter().map(one).collect::<Vec<_>>(), End::Blocks))
        .unwrap();
    let image = dir.path().join("image");
    let patterns = [
        "a",
        "a/b",
        "b",
        "*.o",
        "a*",
        "?",
        "[ab]",
        "[!a]",
        "c",
        "a/",
        "b/a*",
        r"\*",
        "[x",
        "*/b",
        "**",
        "a?b",
        "[[:alpha:]]",
        ".o",
        "b/[[]x",
    ];
    let list = |root: &Path| {
        let found: Vec<Vec<u8>> = manifest(root).entries.into_keys().collect();
        found.into_iter().filter(|name| name != b"lost+found").collect::<Vec<_>>()
    };
    for pattern in patterns {
        let into = dir.path().join("judge");
        let _ = std::fs::remove_dir_all(&into);
        std::fs::create_dir(&into).unwrap();
        let mut tar = Command::new("tar");
        let tar = tar.arg(format!("--exclude={pattern}")).arg("-xf").arg(&path).arg("-C");
        assert!(tar.arg(&into).status().unwrap().success(), "{pattern}");
        let _ = std::fs::remove_file(&image);
        done(&["import", "--exclude", pattern, text(&path), text(&image)]);
        let mount = KernelMount::new(&image, "ro").unwrap();
        let found = list(mount.path());
        mount.unmount().unwrap();
        assert_eq!(found, list(&into), "{pattern}");
    }
    // Owners by number and by name.
    let owned = Head { owner: 1000, ..Head::new(b'0', b"f") }.member(b"");
    let named = [pax(&[("uname", b"lisa"), ("gname", b"staff")]), member(b'0', b"g", b"", b"")];
    let link = member(b'2', b"l", b"real", b"");
    let dirs = ["real/", "l/"].map(|name| Head { mode: 0o755, ..Head::new(b'5', name.as_bytes()) });
    let [real, l] = dirs.map(|head| head.member(b""));
    let members = [owned, named.concat(), real, link, l, member(b'0', b"l/x", b"", b"in")];
    std::fs::write(&path, archive(&members, End::Blocks)).unwrap();
    let map = dir.path().join("map");
    std::fs::write(&map, "+1000 0 # the builder\nlisa lisa:7\nstaff 50\n").unwrap();
    std::fs::remove_file(&image).unwrap();
    let maps = ["--owner-map", text(&map), "--group-map", text(&map)];
    let kept = ["--keep-directory-symlink", text(&path), text(&image)];
    done(&[&["import"], &maps[..], &kept].concat());
    let listed = done(&["ls", "-l", &at(&image, "/")]);
    let of = |name: &str| {
        let line = listed.lines().find(|line| line.ends_with(name)).unwrap();
        line.split_whitespace().skip(2).take(2).collect::<Vec<_>>().join(":")
    };
    assert_eq!((of(" f"), of(" g")), ("0:0".to_owned(), "7:50".to_owned()), "{listed}");
    assert!(listed.contains("l -> real"), "{listed}");
    assert_eq!(done(&["cat", &at(&image, "/real/x")]), "in");
    std::fs::write(&map, "1000 nobody-knows-them\n").unwrap();
    std::fs::remove_file(&image).unwrap();
    let said = refused(2, &["import", "--owner-map", text(&map), text(&path), text(&image)]);
    assert!(said.contains("line 1: `nobody-knows-them` is no owner"), "{said}");
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packer, bytes).unwrap();
    packer.finish().unwrap()
}

#[test]
fn other_compressions_are_named() {
    let dir = scratch();
    let image = dir.path().join("image");
    for (start, name) in [
        (&b"LZIP\x01"[..], "lzip"),
        (b"\x02\x21\x4C\x18", "lz4 in its old format"),
        (b"\x5D\0\0\x80\0", "lzma"),
        (b"\x89LZO\0\r\n", "lzop"),
        (b"\x1F\x9D\x90", "compress"),
    ] {
        let path: PathBuf = dir.path().join("a.tar");
        std::fs::write(&path, [start, &[1; 2000]].concat()).unwrap();
        let said = refused(4, &["import", text(&path), text(&image)]);
        assert!(said.contains(&format!("compressed by {name}, which is not supported")), "{said}");
        assert!(!image.exists());
    }
}

/// As many files, as large: whatever mke2fs rounds, the tree fits.
#[test]
fn new_images_have_room_for_the_tree() {
    let test = "new_images_have_room_for_the_tree";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let (path, image) = (dir.path().join("a.tar"), dir.path().join("a.img"));
    for (files, bytes, name_bytes) in
        [(1, 0, 1), (1, 70 << 20, 1), (3000, 4097, 90), (30_000, 1, 7), (34_000, 0, 90)]
    {
        let data = vec![7; bytes];
        let file = |n: usize| member(b'0', format!("{n:0>name_bytes$}").as_bytes(), b"", &data);
        let members: Vec<Vec<u8>> = (0..files).map(file).collect();
        std::fs::write(&path, archive(&members, End::Blocks)).unwrap();
        let _ = std::fs::remove_file(&image);
        done(&["import", text(&path), text(&image)]);
        e2fsck_clean(&image).unwrap();
        let size = std::fs::metadata(&image).unwrap().size();
        let needs = (files * bytes.next_multiple_of(4096)) as u64;
        assert!(size < 3 * needs + files as u64 * 8192 + (64 << 20), "{files}: {size}");
    }
    // Room beside the tree, as it was asked for.
    let data = vec![7; 9 << 20];
    std::fs::write(&path, archive(&[member(b'0', b"f", b"", &data)], End::Blocks)).unwrap();
    let sized = |options: &[&str]| {
        let _ = std::fs::remove_file(&image);
        done(&[&["import"], options, &[text(&path), text(&image)]].concat());
        e2fsck_clean(&image).unwrap();
        std::fs::metadata(&image).unwrap().len()
    };
    let least = sized(&["--minimum"]);
    assert!(least < 14 << 20, "{least}: a journal of 4 MiB and no more");
    assert!(sized(&["--spare", "50%"]) > least + (4 << 20));
    assert!(sized(&["--spare", "60M"]) > least + (60 << 20));
    assert!(sized(&["--minimum", "--inodes", "20000"]) > least + 19_000 * 256);
    assert_eq!(sized(&["--size", "100M"]), 100 << 20);
    let ran = run(&["import", "--spare", "x%", text(&path), text(&image)]);
    assert!(ran.code == 2 && ran.err.contains("a part like 20%"), "{ran:?}");
    let link = pax(&[("linkpath", "x/".repeat(1900).as_bytes())]);
    let attribute = pax(&[("SCHILY.xattr.user.long", &[b'v'; 2000])]);
    let members = [
        [link, member(b'2', b"link", b"", b"")].concat(),
        [attribute, member(b'0', b"file", b"", b"")].concat(),
    ];
    std::fs::write(&path, archive(&members, End::Blocks)).unwrap();
    std::fs::remove_file(&image).unwrap();
    done(&["import", text(&path), text(&image)]);
    e2fsck_clean(&image).unwrap();
    // Where it does not fit, the sentence says so.
    let small = mkfs(&ImageSpec { block_size_bytes: 1024, ..ImageSpec::default() });
    let said = refused(1, &["import", text(&path), text(small.path())]);
    assert!(said.contains("a link to a name of 3800 bytes does not fit"), "{said}");
    std::fs::write(&path, archive(&members[1..], End::Blocks)).unwrap();
    let said = refused(1, &["import", text(&path), text(small.path())]);
    assert!(said.contains("user.long of 2000 bytes does not fit"), "{said}");
}
