//! Each call, after each directory that it goes through, and what it is about, became a link.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::Host;
use crate::copy::side::{Meta, Side};
use crate::platform::bytes_of;

/// `home`, which somebody else may change, and `outside`, which nothing may touch.
struct Place {
    dir: PathBuf,
}

impl Drop for Place {
    fn drop(&mut self) {
        // In the system's directory for such things in any case.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Place {
    fn new(name: &str) -> Place {
        let name = format!("syncline-host-{name}-{}", std::process::id());
        let place = Place { dir: std::env::temp_dir().join(name) };
        let _ = fs::remove_dir_all(&place.dir);
        fs::create_dir_all(place.at("home")).unwrap();
        fs::create_dir_all(place.at("outside/e")).unwrap();
        fs::write(place.at("outside/f"), "secret").unwrap();
        fs::write(place.at("outside/e/f"), "secret").unwrap();
        for name in ["outside", "outside/e", "outside/f", "outside/e/f"] {
            fs::set_permissions(place.at(name), fs::Permissions::from_mode(0o700)).unwrap();
        }
        place
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        bytes_of(self.at(name).as_os_str()).into_owned()
    }

    /// The name leads outside from now on.
    fn swap(&self, name: &str, to: &str) {
        let path = self.at(name);
        fs::rename(&path, path.with_extension("away")).unwrap();
        symlink(self.at(to), &path).unwrap();
    }

    fn untouched(&self, what: &str) {
        let names = |dir: &str| {
            let names = fs::read_dir(self.at(dir)).unwrap().map(|entry| entry.unwrap().file_name());
            let mut names: Vec<_> = names.collect();
            names.sort();
            names
        };
        assert_eq!(names("outside"), ["e", "f"], "{what}");
        assert_eq!(names("outside/e"), ["f"], "{what}");
        for name in ["outside", "outside/e", "outside/f", "outside/e/f"] {
            let meta = fs::metadata(self.at(name)).unwrap();
            assert_eq!((meta.mode() & 0o7777, meta.nlink() < 4), (0o700, true), "{what}: {name}");
            assert!(meta.mtime() > 1_000_000, "{what}: {name}");
        }
        assert_eq!(fs::read(self.at("outside/f")).unwrap(), b"secret", "{what}");
    }
}

const FILE: Meta = Meta {
    mode: 0o104_777,
    uid: 0,
    gid: 0,
    size: 0,
    nlink: 1,
    id: (0, 0),
    rdev: 0,
    atime: (5, 0),
    mtime: (5, 0),
};
const DIR: Meta = Meta { mode: 0o040_777, ..FILE };
const LINK: Meta = Meta { mode: 0o120_777, ..FILE };

fn owned(path: &Path) -> Meta {
    let meta = fs::metadata(path).unwrap();
    Meta { uid: meta.uid(), gid: meta.gid(), ..FILE }
}

#[test]
fn no_call_goes_through_a_link_that_was_swapped_in() {
    type Call = fn(&Host, &[u8]) -> bool;
    let calls: [(&str, Call); 13] = [
        ("list", |host, d| host.list(d).is_ok()),
        ("stat", |host, d| matches!(host.stat(&[d, b"/f"].concat(), false), Ok(Some(_)))),
        ("stat of a followed", |host, d| {
            matches!(host.stat(&[d, b"/f"].concat(), true), Ok(Some(_)))
        }),
        ("open", |host, d| host.open(&[d, b"/f"].concat()).is_ok()),
        ("attributes", |host, d| host.xattrs(&[d, b"/f"].concat()).is_ok()),
        ("create", |host, d| host.create(&[d, b"/new"].concat()).is_ok()),
        ("mkdir", |host, d| host.mkdir(&[d, b"/new"].concat()).is_ok()),
        ("symlink", |host, d| host.symlink(&[d, b"/new"].concat(), b"x").is_ok()),
        ("mknod", |host, d| {
            host.mknod(&[d, b"/new"].concat(), &Meta { mode: 0o010_600, ..FILE }).is_ok()
        }),
        ("unlink", |host, d| host.unlink(&[d, b"/f"].concat()).is_ok()),
        ("rename", |host, d| {
            let (from, to) = ([d, b"/f"].concat(), [d, b"/g"].concat());
            host.rename(&from, &to).is_ok()
        }),
        ("attributes of a file", |host, d| {
            host.set_meta(&[d, b"/f"].concat(), &FILE, Some(&[])).is_ok()
        }),
        ("attributes of a directory", |host, d| host.set_meta(d, &DIR, Some(&[])).is_ok()),
    ];
    for (what, call) in calls {
        for (depth, swapped, to) in [
            ("home/d", "home/d", "outside"),
            ("home/d/e", "home/d/e", "outside/e"),
            ("home/d/e", "home/d", "outside"),
        ] {
            let place = Place::new("swap");
            fs::create_dir_all(place.at("home/d/e")).unwrap();
            fs::write(place.at("home/d/f"), "own").unwrap();
            fs::write(place.at("home/d/e/f"), "own").unwrap();
            let host = Host::target(&place.bytes("home"));
            place.swap(swapped, to);
            let what = format!("{what} in {depth} after {swapped}");
            assert!(!call(&host, &place.bytes(depth)), "{what}");
            place.untouched(&what);
        }
    }
}

#[test]
fn attributes_go_to_what_was_made() {
    for swapped in [false, true] {
        let place = Place::new("made");
        let host = Host::target(&place.bytes("home"));
        let path = place.bytes("home/f");
        let meta = owned(&place.at("home"));
        drop(host.create(&path).unwrap());
        if swapped {
            place.swap("home/f", "outside/f");
        }
        host.set_meta(&path, &meta, Some(&[])).unwrap();
        let made = if swapped { "home/f.away" } else { "home/f" };
        let found = fs::symlink_metadata(place.at(made)).unwrap();
        assert_eq!((found.mode() & 0o7777, found.mtime()), (0o4777, 5));
        place.untouched("a file");
        // A link in whose place another file is put: a hard link, which NOFOLLOW does not stop.
        let path = place.bytes("home/l");
        host.symlink(&path, b"x").unwrap();
        if swapped {
            fs::rename(place.at("home/l"), place.at("home/l.away")).unwrap();
            fs::hard_link(place.at("outside/f"), place.at("home/l")).unwrap();
            assert!(host.set_meta(&path, &LINK, Some(&[])).is_err());
            place.untouched("a link");
        } else {
            host.set_meta(&path, &Meta { mode: LINK.mode, ..meta }, Some(&[])).unwrap();
            assert_eq!(fs::symlink_metadata(place.at("home/l")).unwrap().mtime(), 5);
        }
        let (path, pipe) = (place.bytes("home/p"), Meta { mode: 0o010_640, ..meta });
        host.mknod(&path, &pipe).unwrap();
        if swapped {
            fs::rename(place.at("home/p"), place.at("home/p.away")).unwrap();
            fs::hard_link(place.at("outside/f"), place.at("home/p")).unwrap();
            assert!(host.set_meta(&path, &pipe, Some(&[])).is_err());
            place.untouched("a pipe");
        } else {
            host.set_meta(&path, &pipe, Some(&[])).unwrap();
            let found = fs::symlink_metadata(place.at("home/p")).unwrap();
            assert_eq!((found.mode() & 0o7777, found.mtime()), (0o640, 5));
        }
    }
}

#[test]
fn a_pipe_in_the_place_of_a_file_is_not_waited_for() {
    let place = Place::new("pipe");
    let host = Host::source(&place.bytes("home"), false);
    host.mknod(&place.bytes("home/p"), &Meta { mode: 0o010_600, ..FILE }).unwrap();
    assert!(host.open(&place.bytes("home/p")).is_err());
    // Named, it is one; a link that is named is followed.
    symlink(place.at("outside/f"), place.at("home/l")).unwrap();
    let named = Host::source(&place.bytes("home/l"), true);
    assert_eq!(named.stat(&place.bytes("home/l"), true).unwrap().unwrap().size, 6);
    assert!(named.open(&place.bytes("home/l")).is_ok());
    let whole = Host::source(&place.bytes("home/l"), false);
    assert!(whole.open(&place.bytes("home/l")).is_err());
}

#[test]
fn paths_are_taken_as_they_are_named() {
    let place = Place::new("paths");
    fs::create_dir_all(place.at("home/d/e")).unwrap();
    fs::write(place.at("home/d/e/f"), "1").unwrap();
    symlink(place.at("home/d"), place.at("link")).unwrap();
    for (named, path) in [
        ("home/d", "home/d/e/f"),
        ("home/d/", "home/d/e/f"),
        ("home//d", "home//d/e/f"),
        ("home/d/.", "home/d/./e/f"),
        ("home/d/e/..", "home/d/e/../e/f"),
        ("link/e", "link/e/f"),
        ("link/.", "link/./e/f"),
    ] {
        let host = Host::source(&place.bytes(named), false);
        let found = host.stat(&place.bytes(path), false).unwrap();
        assert_eq!(found.map(|meta| meta.size), Some(1), "{named}");
        assert!(host.stat(&place.bytes("outside/f"), false).is_err(), "{named}");
    }
    let host = Host::source(&place.bytes("nowhere/x"), false);
    assert_eq!(host.stat(&place.bytes("nowhere/x"), false).unwrap(), None);
}
