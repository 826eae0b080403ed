//! Container images: every form of one image gives one file system, random layers give the tree
//! that GNU tar makes of them by the rules of the OCI specification, and damaged ones are refused.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;
use syncline_testkit::{
    Compare, FuzzRounds, KernelMount, Need, Random, TreeManifest, e2fsck_clean, require,
};

use crate::support::container::{
    Files, INDEX, LAYER, MANIFEST, descriptor, digest, packed, piped, platform_of,
};
use crate::support::members::{End, Head, archive, member};
use crate::support::{Ran, at, binary, done, refused, run, scratch, text};

fn tar(members: &[Vec<u8>]) -> Vec<u8> {
    archive(members, End::Blocks)
}

fn dir(name: &str) -> Vec<u8> {
    Head { mode: 0o755, ..Head::new(b'5', name.as_bytes()) }.member(b"")
}

fn file(name: &str, data: &[u8]) -> Vec<u8> {
    member(b'0', name.as_bytes(), b"", data)
}

fn link(kind: u8, name: &str, target: &str) -> Vec<u8> {
    member(kind, name.as_bytes(), target.as_bytes(), b"")
}

/// Three layers with whiteouts and links over layers.
fn sample() -> Vec<Vec<u8>> {
    let lowest = [
        dir("etc"),
        file("etc/kept", b"kept"),
        file("etc/secret", b"never in the image: secret"),
        file("etc/replaced", b"never in the image: old"),
        dir("usr"),
        dir("usr/lib"),
        file("usr/lib/libc", b"one"),
        link(b'2', "lib", "usr/lib"),
        dir("cache"),
        dir("cache/deep"),
        file("cache/deep/x", b"never in the image: cache"),
        file("becomes-dir", b"never in the image: file"),
        dir("becomes-file"),
        file("becomes-file/x", b"never in the image: dir"),
        file("moved", b"moved by a link"),
    ];
    let second = [
        file("etc/.wh.secret", b""),
        file("etc/replaced", b"new"),
        file("cache/.wh..wh..opq", b""),
        file("cache/fresh", b"fresh"),
        dir("becomes-dir"),
        file("becomes-dir/in", b"in"),
        file("becomes-file", b"plain"),
        link(b'1', "by-link", "moved"),
        file("lib/through", b"through the link of the lower layer"),
    ];
    let last = [file(".wh.moved", b""), file("etc/.wh.not-there", b""), file("usr/lib/libc", b"2")];
    vec![tar(&lowest), tar(&second), tar(&last)]
}

/// Runs `import` with bytes on standard input.
fn import_piped(arguments: &[&str], bytes: &[u8]) -> Ran {
    let mut run = binary();
    let run = run.arg("import").args(arguments).env("SOURCE_DATE_EPOCH", "1700000000");
    let run = run.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut run = run.spawn().unwrap();
    let (mut pipe, bytes) = (run.stdin.take().unwrap(), bytes.to_vec());
    let writer = std::thread::spawn(move || drop(std::io::Write::write_all(&mut pipe, &bytes)));
    let output = run.wait_with_output().unwrap();
    writer.join().unwrap();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    Ran { code: output.status.code().unwrap(), out: output.stdout, err }
}

#[test]
fn all_forms_of_an_image_are_one_file_system() {
    let test = "all_forms_of_an_image_are_one_file_system";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let (layers, image) = (sample(), dir.path().join("image"));
    let place = |name: &str| dir.path().join(name);
    let mut first: Option<Vec<u8>> = None;
    // Nothing but the image is left.
    let mut files = None;
    let mut same = |arguments: &[&str], bytes: &[u8]| {
        let _ = std::fs::remove_file(&image);
        let ran = import_piped(&[arguments, &[text(&image)]].concat(), bytes);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{arguments:?}");
        let made = std::fs::read(&image).unwrap();
        let first = first.get_or_insert_with(|| made.clone());
        assert!(*first == made, "{arguments:?} gives another image");
        let left = std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(*files.get_or_insert(left), left, "{arguments:?}");
    };
    let mut prefixed = Vec::new();
    for (name, suffix) in [("plain", ""), ("gz", "+gzip"), ("zst", "+zstd")] {
        let files = Files::layout(&layers, suffix);
        files.write(&place(name));
        std::fs::write(place(&format!("{name}.tar")), files.archive()).unwrap();
        prefixed.push(format!("oci:{}", text(&place(name))));
        prefixed.push(format!("oci:{}:latest", text(&place(name))));
        prefixed.push(format!("oci-archive:{}.tar:latest", text(&place(name))));
    }
    for (name, old) in [("old", true), ("new", false)] {
        let files = Files::docker(&layers, old, "team/app:1");
        std::fs::write(place(name), files.archive()).unwrap();
        std::fs::write(place(&format!("{name}.gz")), piped("gzip -nc", &files.archive())).unwrap();
        prefixed.push(format!("docker-archive:{}", text(&place(name))));
        prefixed.push(format!("docker-archive:{}:team/app:1", text(&place(name))));
        prefixed.push(format!("docker-archive:{}.gz", text(&place(name))));
    }
    for (number, layer) in layers.iter().enumerate() {
        let packed = packed(layer, ["", "+gzip", "+zstd"][number]);
        std::fs::write(place(&number.to_string()), packed).unwrap();
    }
    prefixed.iter().for_each(|source| same(&[source], b""));
    for old in [true, false] {
        let archive = Files::docker(&layers, old, "app:latest").archive();
        same(&["--docker", "-"], &archive);
        same(&["docker-archive:-:app"], &archive);
        same(&["docker-archive:-"], &piped("zstd -qc", &archive));
    }
    same(&["oci-archive:-"], &Files::layout(&layers, "+gzip").archive());
    let paths = [0, 1, 2].map(|number| place(&number.to_string()));
    same(&["--layers", text(&paths[0]), text(&paths[1]), text(&paths[2])], b"");
    e2fsck_clean(&image).unwrap();
    let bytes = first.unwrap();
    let hidden = b"never in the image";
    assert!(!bytes.windows(hidden.len()).any(|part| part == hidden));
    for (path, data) in [
        ("/etc/kept", "kept"),
        ("/etc/replaced", "new"),
        ("/usr/lib/through", "through the link of the lower layer"),
        ("/lib/libc", "2"),
        ("/by-link", "moved by a link"),
        ("/becomes-file", "plain"),
        ("/becomes-dir/in", "in"),
    ] {
        assert_eq!(done(&["cat", &at(&image, path)]), data, "{path}");
    }
    assert_eq!(done(&["ls", &at(&image, "/cache")]), "fresh\n");
    assert_eq!(done(&["ls", &at(&image, "/etc")]), "kept\nreplaced\n");
}

/// The rules of the specification on a directory: whiteouts, then members one by one with GNU tar.
struct Reference<'a> {
    root: &'a Path,
    scratch: &'a Path,
}

impl Reference<'_> {
    /// Applies a layer; false: it cannot be.
    fn apply(&self, members: &[Made]) -> bool {
        let in_place = |name: &str| self.root.join(name);
        for made in members {
            let (above, name) = made.path.rsplit_once('/').unwrap_or((".", &made.path));
            if name == ".wh..wh..opq" {
                let below = std::fs::read_dir(in_place(above));
                // A link is no directory of the lower layers.
                let is_dir = in_place(above).symlink_metadata().is_ok_and(|meta| meta.is_dir());
                below.into_iter().flatten().filter(|_| is_dir).for_each(|entry| {
                    remove(&entry.unwrap().path());
                });
            }
        }
        for made in members {
            let (above, name) = made.path.rsplit_once('/').unwrap_or((".", &made.path));
            if let Some(hidden) = name.strip_prefix(".wh.").filter(|name| !name.starts_with(".wh."))
            {
                remove(&in_place(above).join(hidden));
            }
        }
        let names = |made: &&Made| !made.path.contains(".wh.");
        members.iter().filter(names).all(|made| self.member(made))
    }

    fn member(&self, made: &Made) -> bool {
        let path = self.root.join(&made.path);
        let there = path.symlink_metadata().ok();
        if made.kind == b'1' {
            let target = self.root.join(&made.link);
            let Ok(target) = target.symlink_metadata() else { return false };
            if target.is_dir() {
                return false;
            }
            if there.as_ref().is_some_and(|there| there.ino() == target.ino()) {
                return true;
            }
        }
        let both_dirs = made.kind == b'5' && there.as_ref().is_some_and(|there| there.is_dir());
        if there.is_some() && !both_dirs {
            remove(&path);
        }
        let one = self.scratch.join("one.tar");
        std::fs::write(&one, tar(std::slice::from_ref(&made.bytes))).unwrap();
        let (one, root) = (text(&one), text(self.root));
        let command = format!("umask 022; tar --warning=no-timestamp -xpf {one} -C {root}");
        Command::new("sh").args(["-c", &command]).stderr(Stdio::null()).status().unwrap().success()
    }
}

fn remove(path: &Path) {
    match path.symlink_metadata() {
        Ok(meta) if meta.is_dir() => std::fs::remove_dir_all(path).unwrap(),
        Ok(_) => std::fs::remove_file(path).unwrap(),
        Err(_) => {}
    }
}

/// A member of a random layer.
struct Made {
    kind: u8,
    path: String,
    link: String,
    bytes: Vec<u8>,
}

/// A random layer. `marks` gets what its files contain.
fn random_layer(
    random: &mut Random,
    known: &mut Vec<String>,
    marks: &mut Vec<String>,
) -> Vec<Made> {
    let mut layer: Vec<Made> = Vec::new();
    for _ in 0..2 + random.index(14) {
        let depth = 1 + random.index(3);
        let names: Vec<String> =
            (0..depth).map(|_| char::from(b'a' + random.index(4) as u8).to_string()).collect();
        let mut path = names.join("/");
        // Paths of lower layers are more interesting than new ones.
        if !known.is_empty() && random.one_in(2) {
            path = known[random.index(known.len())].clone();
        }
        let (mut kind, mut target) = (b"0000555212ww"[random.index(12)], String::new());
        match kind {
            b'1' if known.is_empty() => continue,
            b'1' => target = known[random.index(known.len())].clone(),
            b'2' => target = ["a", "b", "c/a", "d"][random.index(4)].to_owned(),
            b'w' => {
                let (above, name) = path.rsplit_once('/').unwrap_or(("", &path));
                let slash = if above.is_empty() { "" } else { "/" };
                path = match random.index(3) {
                    0 if !above.is_empty() => format!("{above}/.wh..wh..opq"),
                    _ => format!("{above}{slash}.wh.{name}"),
                };
                kind = b'0';
            }
            _ => {}
        }
        // A layer has a name once.
        if layer.iter().any(|made| made.path == path) {
            continue;
        }
        let mark = format!("<mark {:016x}>", random.bits());
        let is_whiteout = path.contains(".wh.");
        let data = match kind {
            b'0' if !is_whiteout => mark.repeat(1 + random.index(400)),
            _ => String::new(),
        };
        let head = Head {
            link: target.as_bytes(),
            mode: [0o644, 0o755, 0o700, 0o1777][random.index(4)],
            owner: random.index(3000) as u32,
            mtime: 1_000_000_000 + random.index(1000) as i64,
            ..Head::new(kind, path.as_bytes())
        };
        let bytes = head.member(data.as_bytes());
        if !is_whiteout {
            known.push(path.clone());
            marks.extend((!data.is_empty()).then_some(mark));
        }
        layer.push(Made { kind, path, link: target, bytes });
    }
    layer
}

#[test]
fn random_layers_give_the_tree_of_the_specification() {
    let test = "random_layers_give_the_tree_of_the_specification";
    if !require(test, &[Need::Root, Need::Loop, Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let (root, image) = (dir.path().join("root"), dir.path().join("image"));
    let (mut made, mut refused) = (0, 0);
    for seed in FuzzRounds::at_least(60) {
        let mut random = Random::new(seed);
        let (mut known, mut marks) = (Vec::new(), Vec::new());
        let count = 1 + random.index(4);
        let layers: Vec<Vec<Made>> =
            (0..count).map(|_| random_layer(&mut random, &mut known, &mut marks)).collect();
        remove(&root);
        std::fs::create_dir(&root).unwrap();
        let reference = Reference { root: &root, scratch: dir.path() };
        // What is below the lowest layer is nothing, so it has no whiteouts.
        let expected = layers.iter().all(|layer| reference.apply(layer));
        let tars: Vec<Vec<u8>> = layers
            .iter()
            .map(|layer| tar(&layer.iter().map(|made| made.bytes.clone()).collect::<Vec<_>>()))
            .collect();
        let layout = dir.path().join("layout");
        remove(&layout);
        let suffix = ["", "+gzip", "+zstd"][random.index(3)];
        Files::layout(&tars, suffix).write(&layout);
        let _ = std::fs::remove_file(&image);
        let ran = run(&["import", &format!("oci:{}", text(&layout)), text(&image)]);
        assert_eq!(ran.code == 0, expected, "seed {seed}: {ran:?}");
        if !expected {
            assert!(!image.exists());
            refused += 1;
            continue;
        }
        made += 1;
        e2fsck_clean(&image).unwrap();
        let mount = KernelMount::new(&image, "ro").unwrap();
        let manifest = |path: &Path| {
            let mut found = TreeManifest::from_dir(path).unwrap();
            found.entries.remove(&b""[..]);
            found.entries.remove(&b"lost+found"[..]);
            // Tar sets a directory's time before the next member changes it.
            let dirs = found.entries.values_mut().filter(|entry| entry.is_dir());
            dirs.for_each(|entry| entry.stat.mtime = Default::default());
            found
        };
        let found = manifest(mount.path());
        mount.unmount().unwrap();
        manifest(&root).assert_same(&found, Compare::SAME_TREE, &format!("seed {seed}"));
        let in_tree = piped(&format!("cat $(find {} -type f) /dev/null", text(&root)), b"");
        let (bytes, in_tree) =
            (std::fs::read(&image).unwrap(), String::from_utf8_lossy(&in_tree).into_owned());
        let bytes = String::from_utf8_lossy(&bytes);
        for mark in marks.iter().filter(|mark| !in_tree.contains(*mark)) {
            assert!(!bytes.contains(mark.as_str()), "seed {seed}: contents that nobody names");
        }
    }
    assert!(made > refused / 4, "{made} made, {refused} refused");
}

/// A layout of a file in one layer, for each platform; the index of them.
fn platforms(files: &mut Files, all: &[&str]) -> serde_json::Value {
    let one = |platform: &&str| {
        let layer = tar(&[file("platform", platform.as_bytes())]);
        let mut manifest = files.image(&[layer], "", platform);
        manifest["platform"] = platform_of(platform);
        manifest
    };
    let manifests: Vec<_> = all.iter().map(one).collect();
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests });
    files.blob(INDEX, index.to_string().as_bytes())
}

#[test]
fn tags_and_platforms_choose_one_image() {
    let dir = scratch();
    let (layout, image) = (dir.path().join("layout"), dir.path().join("image"));
    let mut files = Files::default();
    let all = ["linux/arm/v6", "linux/arm/v7", "linux/amd64", "linux/arm64", "windows/amd64"];
    let mut many = platforms(&mut files, &all);
    many["annotations"] = json!({ "org.opencontainers.image.ref.name": "many" });
    let mut twice = platforms(&mut files, &["linux/arm/v5", "linux/arm/v6"]);
    twice["annotations"] = json!({ "org.opencontainers.image.ref.name": "arm" });
    files.index(&[many, twice]);
    files.write(&layout);
    let import = |tag: &str, options: &[&str]| {
        let _ = std::fs::remove_file(&image);
        let source = format!("oci:{}{tag}", text(&layout));
        run(&[&["import"], options, &[&source, text(&image)]].concat())
    };
    for (options, chosen) in [
        (&["--platform", "linux/arm64"][..], "linux/arm64"),
        (&["--platform", "linux/aarch64"], "linux/arm64"),
        (&["--platform", "linux/arm"], "linux/arm/v7"),
        (&["--platform", "linux/arm/v6"], "linux/arm/v6"),
        (&["--platform", "windows/amd64"], "windows/amd64"),
    ] {
        let ran = import(":many", options);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert_eq!(done(&["cat", &at(&image, "/platform")]), chosen);
    }
    if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
        assert_eq!(import(":many", &[]).code, 0);
    }
    for (tag, options, said) in [
        (":none", &[][..], "no image with the tag none; name one of these: many, arm"),
        ("", &[], "there are 2 images; name a tag: many, arm"),
        (":many", &["--platform", "linux/s390x"], "no image for linux/s390x; give --platform"),
        (":arm", &["--platform", "linux/arm"], "2 images for linux/arm; give --platform with a"),
        (":many", &["--platform", "amd64"], "no system and processor; write linux/arm64"),
    ] {
        let ran = import(tag, options);
        assert!(ran.code == 2 && ran.err.contains(said), "{said}: {ran:?}");
    }
    let docker = dir.path().join("saved");
    std::fs::write(&docker, Files::docker(&sample(), true, "app:1").archive()).unwrap();
    let source = format!("docker-archive:{}:other", text(&docker));
    let said = refused(2, &["import", &source, text(&image)]);
    assert!(said.contains("no image with the name other; name one of: app:1"), "{said}");
}

/// Imports a layout and expects a refusal that leaves nothing.
fn refuses(files: &Files, code: i32, said: &str) {
    let dir = scratch();
    let (layout, image) = (dir.path().join("layout"), dir.path().join("image"));
    files.write(&layout);
    let ran = run(&["import", &format!("oci:{}", text(&layout)), text(&image)]);
    assert!(
        ran.code == code && ran.err.contains(said) && ran.err.contains("; "),
        "{said}: {ran:?}"
    );
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "{said}: something is left");
}

#[test]
fn damaged_images_are_refused_and_leave_nothing() {
    for suffix in ["", "+gzip", "+zstd"] {
        let good = Files::layout(&sample(), suffix);
        for (name, bytes) in good.0.iter().filter(|(name, _)| name.starts_with("blobs")) {
            for place in [0, bytes.len() / 2, bytes.len() - 1] {
                let mut files = good.clone();
                files.0.get_mut(name).unwrap()[place] ^= 1;
                refuses(&files, 3, "damaged");
            }
            let mut files = good.clone();
            files.0.get_mut(name).unwrap().pop();
            refuses(&files, 3, "bytes and not");
            files.0.remove(name);
            refuses(&files, 3, "is missing");
        }
    }
    // Digests that fit damaged bytes.
    let layer = tar(&[file("f", b"data")]);
    let of = |stored: &[u8], diff_id: &str, suffix: &str| {
        let mut files = Files::default();
        let stored = files.blob(&format!("{LAYER}{suffix}"), stored);
        let manifest = files.manifest(&[diff_id.to_owned()], &[stored], "linux/amd64");
        files.index(&[manifest]);
        files
    };
    refuses(&of(&layer, &digest(b"other"), ""), 3, "its uncompressed digest is not");
    for suffix in ["+gzip", "+zstd"] {
        let stored = packed(&layer, suffix);
        refuses(&of(&[&stored, &b"junk"[..]].concat(), &digest(&layer), suffix), 3, "is damaged");
        let cut = &stored[..stored.len() - 3];
        refuses(&of(cut, &digest(&layer), suffix), 3, "is damaged");
    }
    let cut = &layer[..700];
    refuses(&of(cut, &digest(cut), ""), 3, "it ends early");
    for document in ["index.json", "oci-layout"] {
        let mut files = of(&layer, &digest(&layer), "");
        files.0.insert(document.to_owned(), b"{".to_vec());
        refuses(&files, 3, document);
        files.0.remove(document);
        refuses(&files, 1, &format!("there is no {document}"));
    }
    let dir = scratch();
    let (saved, image) = (dir.path().join("saved"), dir.path().join("image"));
    let archive = Files::docker(&sample(), true, "app:1").archive();
    for cut in [100, archive.len() / 3, archive.len() - 12_000] {
        std::fs::write(&saved, &archive[..cut]).unwrap();
        for arguments in [["--docker", text(&saved)], ["--docker", "-"]] {
            let ran = import_piped(&[&arguments[..], &[text(&image)]].concat(), &archive[..cut]);
            assert!(ran.code != 0 && !image.exists(), "{cut}: {ran:?}");
        }
    }
}

#[test]
fn names_and_whiteouts_that_lead_out_are_refused() {
    for (name, said) in [
        ("../f", "with `..`"),
        ("d/../../f", "with `..`"),
        ("../.wh.f", "with `..`"),
        ("d/.wh...", "a whiteout of no name"),
        (".wh..", "a whiteout of no name"),
        ("d/.wh.", "a whiteout of no name"),
    ] {
        let layers = [tar(&[dir("d"), file("f", b"1")]), tar(&[file(name, b"")])];
        refuses(&Files::layout(&layers, ""), 3, said);
    }
    for (members, code, said) in [
        (vec![link(b'1', "f", "../../etc/passwd")], 3, "with `..`"),
        (vec![link(b'1', "f", "gone")], 1, "a hard link to /gone, which is missing"),
        (vec![link(b'1', "f", "d")], 1, "a hard link to the directory /d"),
        (vec![file("lost+found", b"")], 1, "/lost+found is no directory"),
        (vec![file("d/f/g", b"")], 1, "not a directory"),
    ] {
        let layers = [tar(&[dir("d"), file("d/f", b"1")]), tar(&members)];
        refuses(&Files::layout(&layers, ""), code, said);
    }
    // A link leads nowhere but into the image, also one that a lower layer has.
    let outside = scratch();
    let target = outside.path().join("made");
    let up = link(b'2', "out", text(outside.path()));
    let layers = [tar(&[up]), tar(&[file("out/made", b"1")])];
    let dir = scratch();
    Files::layout(&layers, "").write(&dir.path().join("layout"));
    let (source, image) = (dir.path().join("layout"), dir.path().join("image"));
    let ran = run(&["import", &format!("oci:{}", text(&source)), text(&image)]);
    assert!(ran.code != 0 && !target.exists() && !image.exists(), "{ran:?}");
}

#[test]
fn what_is_no_image_of_files_is_named() {
    let layer = tar(&[file("f", b"1")]);
    let of = |media_type: &str| {
        let mut files = Files::default();
        let stored = files.blob(media_type, &layer);
        let manifest = files.manifest(&[digest(&layer)], &[stored], "linux/amd64");
        files.index(&[manifest]);
        files
    };
    refuses(&of(&format!("{LAYER}+gzip+encrypted")), 4, "is encrypted; decrypt the image with");
    let foreign = "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip";
    refuses(&of(foreign), 4, "is foreign and no part of the image");
    let mut files = of(LAYER);
    let old = files.blob("", b"{\"schemaVersion\": 1, \"fsLayers\": []}");
    files.index(&[old]);
    refuses(&files, 4, "is a Docker manifest of schema 1; convert the image with `skopeo copy");
    let mut files = of(LAYER);
    let config = files.blob("application/vnd.cncf.helm.config.v1+json", b"{}");
    let chart = json!({ "schemaVersion": 2, "config": config, "layers": [] });
    let chart = files.blob(MANIFEST, chart.to_string().as_bytes());
    files.index(&[chart]);
    refuses(&files, 4, "no container image; name another tag");
    let mut files = of(LAYER);
    files.index(&[json!({ "mediaType": MANIFEST, "digest": "md5:00", "size": 1 })]);
    refuses(&files, 4, "neither sha256 nor sha512");
    let mut files = of(LAYER);
    files.index(&[json!({ "digest": "sha256:../../../../etc/passwd", "size": 1 })]);
    refuses(&files, 3, "is no digest");
    // An index in itself cannot be; many in each other can.
    let mut files = of(LAYER);
    let mut inner = descriptor(MANIFEST, b"");
    for _ in 0..10 {
        let index = json!({ "schemaVersion": 2, "manifests": [inner] });
        inner = files.blob(INDEX, index.to_string().as_bytes());
    }
    files.index(&[inner]);
    refuses(&files, 3, "nested more than 8 times");
}

#[test]
fn a_full_host_or_an_interrupt_leaves_no_image_of_layers() {
    let test = "a_full_host_or_an_interrupt_leaves_no_image_of_layers";
    if !require(test, &[Need::Root]) {
        return;
    }
    let dir = scratch();
    let (host, saved) = (dir.path().join("host"), dir.path().join("saved"));
    std::fs::create_dir(&host).unwrap();
    let mut mount = Command::new("mount");
    let mount = mount.args(["-t", "tmpfs", "-o", "size=3m", "tmpfs"]).arg(&host);
    assert!(mount.status().unwrap().success(), "a tmpfs");
    let data: Vec<u8> = (0..5_000_000_u32).map(|n| (n / 7) as u8).collect();
    let layers = [tar(&[file("f", &data)]), tar(&[file("g", b"1")])];
    let archive = Files::docker(&layers, false, "app:1").archive();
    std::fs::write(&saved, &archive).unwrap();
    let image = host.join("image");
    let of_file = run(&["import", "--docker", text(&saved), text(&image)]);
    let of_pipe = import_piped(&["--docker", "-", text(&image)], &archive);
    let left: BTreeMap<_, _> =
        std::fs::read_dir(&host).unwrap().map(|e| (e.unwrap().path(), ())).collect();
    let unmounted = Command::new("umount").arg(&host).status().unwrap().success();
    for ran in [of_file, of_pipe] {
        assert!(ran.code == 1 && ran.err.contains("make room"), "{ran:?}");
    }
    assert!(left.is_empty() && unmounted, "{left:?}");
    // A pipe that gives nothing more while Ctrl-C comes.
    let image = dir.path().join("image");
    let mut run = binary();
    let run = run.args(["import", "--docker", "-", text(&image)]).stdin(Stdio::piped());
    let mut run = run.stderr(Stdio::piped()).spawn().unwrap();
    let mut pipe = run.stdin.take().unwrap();
    std::io::Write::write_all(&mut pipe, &archive[..1 << 20]).unwrap();
    let pid = rustix::process::Pid::from_child(&run);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    drop(pipe);
    let output = run.wait_with_output().unwrap();
    assert!(!output.status.success() && !image.exists(), "{output:?}");
}
