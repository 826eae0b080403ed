//! The workloads whose power cuts are explored. Each is a list of steps on an empty volume.

use syncline_fs::FallocateMode;
use syncline_model::Random;

use crate::crash::recorder::Recorder;

/// SQLite's rollback journal in DELETE mode: page images and header into a new journal, synced
/// with its directory; the database, synced; the journal is deleted without a sync.
pub fn sqlite_delete(r: &mut Recorder) {
    r.mkdir("app");
    r.create("app/db");
    r.write("app/db", 0, 64);
    r.fsync("app/db");
    r.fsync_dir("app");
    let mut random = Random::new(7);
    for round in 0..5 {
        r.create("app/db-journal");
        r.write("app/db-journal", 0, 1);
        r.write("app/db-journal", 1, 17);
        r.fdatasync("app/db-journal");
        if round != 2 {
            r.fsync_dir("app");
        }
        r.write("app/db-journal", 0, 1);
        r.fdatasync("app/db-journal");
        r.write("app/db", random.below(8) * 8, 8);
        r.append("app/db", 8);
        r.fdatasync("app/db");
        r.unlink("app/db-journal");
        r.pass(random.below(3000));
    }
}

/// As [`sqlite_delete`], where the syncs of the journal only order; the database is synced in every
/// third transaction.
pub fn sqlite_delete_with_barriers(r: &mut Recorder) {
    r.mkdir("app");
    r.create("app/db");
    r.write("app/db", 0, 64);
    r.fsync("app/db");
    r.fsync_dir("app");
    let mut random = Random::new(7);
    for round in 0..6 {
        r.create("app/db-journal");
        r.write("app/db-journal", 0, 18);
        r.fdatabarrier("app/db-journal");
        r.write("app/db-journal", 0, 1);
        r.fdatabarrier("app/db-journal");
        r.write("app/db", random.below(8) * 8, 8);
        r.append("app/db", 8);
        if round % 3 == 2 {
            r.fdatasync("app/db");
        } else {
            r.fdatabarrier("app/db");
        }
        r.unlink("app/db-journal");
        r.pass(random.below(3000));
    }
}

/// Files that are overwritten, appended to, deleted and made anew, with more barriers than syncs:
/// blocks change owners while nothing is durable.
pub fn barriers(r: &mut Recorder, seed: u64) {
    let mut random = Random::new(seed);
    let files = ["a", "b", "c"];
    for path in files {
        r.create(path);
        r.write(path, 0, 40);
    }
    r.syncfs();
    for _ in 0..40 {
        let path = files[random.below(3) as usize];
        if !r.has(path) {
            r.create(path);
        }
        match random.below(6) {
            0 => r.append(path, 1 + random.below(40)),
            1 => {
                r.unlink(path);
                continue;
            }
            _ => r.write(path, random.below(5) * 8, 1 + random.below(24)),
        }
        match random.below(8) {
            0 => r.fdatasync(path),
            1 => r.pass(random.below(9000)),
            2 => {}
            3 => {
                // Durable, though nothing is left to write.
                r.fdatabarrier(path);
                r.fdatasync(path);
            }
            _ => r.fdatabarrier(path),
        }
    }
}

/// PERSIST and WAL shapes: one journal overwritten and cut, one log appended to and reset.
pub fn sqlite_persist_and_wal(r: &mut Recorder) {
    for path in ["db", "db-journal", "db-wal"] {
        r.create(path);
        r.write(path, 0, 16);
    }
    r.syncfs();
    for round in 0..4 {
        r.write("db-journal", 0, 20);
        r.fdatasync("db-journal");
        r.write("db", round * 8, 8);
        r.fdatasync("db");
        r.write("db-journal", 0, 1);
        r.fdatasync("db-journal");
        r.append("db-wal", 9);
        r.fdatasync("db-wal");
        r.append("db-wal", 9);
        if round == 2 {
            r.truncate("db-wal", 3);
            r.fsync("db-wal");
        }
        r.pass(10);
    }
}

/// TRUNCATE: the journal is cut to nothing, synced or not, where DELETE unlinks it.
pub fn sqlite_truncate(r: &mut Recorder) {
    r.create("db");
    r.write("db", 0, 64);
    r.fsync("db");
    r.create("db-journal");
    r.fsync_dir("");
    let mut random = Random::new(19);
    for round in 0..6 {
        r.write("db-journal", 0, 1);
        r.write("db-journal", 1, 17);
        r.fdatasync("db-journal");
        r.write("db-journal", 0, 1);
        r.fdatasync("db-journal");
        r.write("db", random.below(8) * 8, 8);
        r.append("db", 8);
        r.fdatasync("db");
        r.truncate("db-journal", 0);
        if round % 2 == 0 {
            r.fdatasync("db-journal");
        }
        r.pass(random.below(3000));
    }
}

/// New contents written beside, synced and renamed over the old; moves between directories,
/// exchanges, links, directories that come and go.
pub fn renames(r: &mut Recorder) {
    r.mkdir("d");
    r.mkdir("e");
    r.create("d/config");
    r.write("d/config", 0, 8);
    r.fsync("d/config");
    for round in 0..5 {
        r.create("d/config.new");
        r.write("d/config.new", 0, 8 + round);
        r.fsync("d/config.new");
        r.rename("d/config.new", "d/config", false);
        if round % 2 == 0 {
            r.fsync_dir("d");
        }
        let other = format!("e/file{round}");
        r.create(&other);
        r.append(&other, 3);
        r.rename(&other, &format!("d/moved{round}"), false);
        if round == 3 {
            r.fsync("d/moved3");
        }
    }
    r.rename("d/config", "d/moved0", true);
    r.link("d/moved1", "e/link");
    r.symlink("e/pointer", "../d/moved1");
    r.fsync_dir("e");
    r.rename("e/link", "d/moved1", false);
    r.rename("e/link", "d/moved2", false);
    r.fsync("d/moved2");
    r.mkdir("e/empty");
    r.rename("e/empty", "d/full", false);
    r.mkdir("e/empty");
    r.rename("e/empty", "d/full", false);
    r.fsync_dir("d");
    r.rmdir("d/full");
    for dir in ["x", "y", "y/z"] {
        r.mkdir(dir);
    }
    r.create("x/new");
    r.syncfs();
    // In a directory that has nothing to do with it.
    r.rename("x/new", "x/current", false);
    r.rmdir("y/z");
    r.fsync_dir("y");
    r.rename("x/current", "x/old", false);
    r.symlink("y/pointer", "../x/old");
    r.fsync_dir("y");
    r.pass(6000);
}

/// Works as git does: an object is written to a temporary name, synced, and renamed or linked to
/// its place; then the reference that names it, in another directory; files that a pack made
/// needless are removed.
pub fn references(r: &mut Recorder) {
    for dir in ["objects", "objects/pack", "refs"] {
        r.mkdir(dir);
    }
    for path in ["refs/log", "objects/other"] {
        r.create(path);
        r.append(path, 1);
    }
    r.syncfs();
    for round in 0..6 {
        let object = format!("objects/{round}");
        let publish = |r: &mut Recorder, path: &str, linked: bool| {
            r.create("objects/tmp");
            r.append("objects/tmp", 3);
            r.fsync("objects/tmp");
            if linked {
                r.link("objects/tmp", path);
                r.unlink("objects/tmp");
            } else {
                r.rename("objects/tmp", path, false);
            }
        };
        publish(r, &object, round % 2 == 1);
        r.create("refs/head.lock");
        r.append("refs/head.lock", 1);
        r.fsync("refs/head.lock");
        r.rename("refs/head.lock", "refs/head", false);
        r.append("refs/log", 1);
        r.create(&format!("refs/{round}"));
        r.fsync("refs/log");
        r.fsync(&format!("refs/{round}"));
        if round % 3 == 2 {
            publish(r, &format!("objects/pack/{round}"), false);
            r.unlink(&format!("refs/{}", round - 1));
            r.fsync_dir("refs");
        }
    }
    r.pass(6000);
}

/// Editors and package managers: a new file renamed over the old one, a file cut and written
/// again; none of it synced, and the names made durable by others.
pub fn replacements(r: &mut Recorder) {
    for path in ["config", "notes"] {
        r.create(path);
        r.write(path, 0, 8);
    }
    r.syncfs();
    for (round, sectors) in (0..).zip([3, 40, 700, 9, 1, 120]) {
        r.replace("config", sectors);
        match round % 3 {
            0 => {
                r.create(&format!("other{round}"));
                r.fsync(&format!("other{round}"));
            }
            1 => r.fsync_dir(""),
            _ => r.pass(6000),
        }
    }
    r.replace("notes", 20);
    for sectors in [5, 300, 16] {
        r.rewrite("notes", sectors);
    }
}

/// Blocks change owners: files are cut and deleted, others get their blocks, some of it synced.
pub fn reallocation(r: &mut Recorder) {
    let mut random = Random::new(11);
    for n in 0..4 {
        let path = format!("f{n}");
        r.create(&path);
        r.write(&path, 0, 200);
    }
    r.syncfs();
    for round in 0..8 {
        let path = format!("f{}", round % 4);
        match round % 3 {
            0 => r.truncate(&path, random.below(100)),
            1 => {
                r.unlink(&path);
                r.create(&path);
            }
            _ => r.truncate(&path, 0),
        }
        let fresh = format!("new{round}");
        r.create(&fresh);
        r.append(&fresh, 150);
        if round % 2 == 0 {
            r.fsync(&fresh);
        }
        r.append(&path, 60 + random.below(60));
        if round % 3 == 1 {
            r.fdatasync(&path);
        }
        if round == 4 {
            r.pass(31_000);
        }
    }
    r.pass(6000);
}

/// Several files are dirty, each is synced while the others wait; data of files that nobody syncs
/// is written back by age.
pub fn overlapping(r: &mut Recorder) {
    let mut random = Random::new(13);
    for n in 0..6 {
        r.create(&format!("f{n}"));
    }
    r.fsync_dir("");
    for round in 0..12 {
        for n in 0..6 {
            let path = format!("f{n}");
            if random.one_in(2) {
                r.append(&path, 1 + random.below(20));
            } else {
                let size = r.size(&path) / 512;
                r.write(&path, random.below(size + 1), 1 + random.below(12));
            }
        }
        let path = format!("f{}", random.below(5));
        if random.one_in(2) {
            r.fsync(&path);
        } else {
            r.fdatasync(&path);
        }
        r.pass(if round == 6 { 35_000 } else { random.below(2000) });
    }
}

/// A directory grows over its first block into an index, its leaves split, and it empties again.
pub fn directory_growth(r: &mut Recorder) {
    r.mkdir("dir");
    let name = |n: u64| format!("dir/name-{n:03}-{}", "y".repeat((n * 37 % 120) as usize));
    for n in 0..90 {
        r.create(&name(n));
        if n % 15 == 14 {
            r.fsync_dir("dir");
        }
        if n % 40 == 39 {
            r.append(&name(n), 2);
            r.fsync(&name(n));
        }
    }
    for n in (0..90).step_by(2) {
        r.unlink(&name(n));
        if n % 30 == 0 {
            r.pass(5100);
        }
    }
    r.fsync_dir("dir");
    for n in 1..9 {
        r.rename(&name(2 * n + 1), &format!("dir/again-{n}"), false);
    }
    r.fsync_dir("dir");
}

/// More transactions than the log has room for: it wraps and is checkpointed on the way.
pub fn log_wrap(r: &mut Recorder) {
    let mut random = Random::new(17);
    for n in 0..10 {
        r.create(&format!("f{n}"));
    }
    r.syncfs();
    for round in 0..130 {
        let path = format!("f{}", random.below(10));
        r.append(&path, 2 + random.below(8));
        if round % 10 == 9 {
            r.truncate(&path, random.below(10));
            r.create(&format!("n{round}"));
        }
        r.fsync(&path);
        if round % 40 == 39 {
            r.pass(6000);
        }
    }
}

/// Space allocated ahead, written, punched and zeroed.
pub fn allocated_ahead(r: &mut Recorder) {
    use FallocateMode::{Allocate, KeepSize, PunchHole, ZeroRange};
    r.create("a");
    r.write("a", 0, 300);
    r.fsync("a");
    r.unlink("a");
    r.pass(5100);
    r.create("b");
    r.fallocate("b", Allocate, 0, 256);
    r.fsync("b");
    for n in [3, 100, 40, 200, 0] {
        r.write("b", n, 10);
        r.fdatasync("b");
    }
    r.fallocate("b", PunchHole, 96, 40);
    r.create("c");
    r.fallocate("c", KeepSize, 0, 128);
    r.append("c", 30);
    r.fsync("c");
    r.fallocate("b", ZeroRange, 36, 30);
    r.fsync("b");
    r.append("c", 50);
    r.write("b", 40, 3);
    r.fdatasync("b");
    r.fallocate("b", PunchHole, 0, 256);
    r.append("c", 40);
    r.fsync("c");
}

/// Files that are deleted while they are open, and files cut in many steps.
pub fn orphans(r: &mut Recorder) {
    for n in 0..5 {
        let path = format!("f{n}");
        r.create(&path);
        for piece in 0..12 {
            r.write(&path, piece * 24, 8);
        }
        r.hold(&path);
    }
    r.syncfs();
    r.unlink("f0");
    r.unlink("f1");
    r.fsync_dir("");
    r.append("f2", 10);
    r.fsync("f2");
    r.release();
    r.truncate("f3", 5);
    r.hold("f4");
    r.create("new");
    r.rename("new", "f4", false);
    r.append("f3", 10);
    r.fsync("f4");
    r.release();
    r.fsync("f3");
    r.pass(6000);
}

/// Files are written before they have a name; most get one, beside orphans that others leave.
pub fn first_names(r: &mut Recorder) {
    r.mkdir("d");
    r.create("old");
    r.write("old", 0, 16);
    r.syncfs();
    let never = r.write_nameless("d", 9, true);
    for n in 0..6 {
        let path = format!("{}f{n}", ["", "d/"][n % 2]);
        let file = r.write_nameless("d", 12 + n as u64, n != 4);
        if n == 2 {
            r.hold("old");
            r.unlink("old");
        }
        r.publish(file, &path);
        match n {
            1 | 5 => r.fsync(&path),
            3 => r.fsync_dir("d"),
            4 => r.rename(&path, "f0", false),
            _ => r.append(&path, 5),
        }
        r.pass(700);
    }
    r.release();
    let last = r.write_nameless("", 20, false);
    assert_ne!(last, never);
    r.publish(last, "last");
    r.unlink("last");
    r.syncfs();
    r.release();
    r.pass(6000);
}

/// Everything at random.
pub fn mixed(r: &mut Recorder, seed: u64) {
    mixed_steps(r, seed, 90);
}

/// So many steps of it, on whatever is there.
pub fn mixed_steps(r: &mut Recorder, seed: u64, steps: u32) {
    let mut random = Random::new(seed);
    for dir in ["d", "e"] {
        if !r.has(dir) {
            r.mkdir(dir);
        }
    }
    let path = |random: &mut Random| {
        let dir = ["", "d/", "e/"][random.index(3)];
        format!("{dir}n{}", random.below(8))
    };
    for _ in 0..steps {
        let (one, two) = (path(&mut random), path(&mut random));
        if !r.has(&one) {
            r.create(&one);
            continue;
        }
        match random.below(14) {
            0 => r.unlink(&one),
            1 if one != two => r.rename(&one, &two, false),
            2 if one != two && r.has(&two) => r.rename(&one, &two, true),
            3 if !r.has(&two) => r.link(&one, &two),
            4 => r.truncate(&one, random.below(60)),
            5..=7 => r.append(&one, 1 + random.below(40)),
            8 => {
                let size = r.size(&one) / 512;
                r.write(&one, random.below(size + 30), 1 + random.below(20));
            }
            9 | 10 => r.fsync(&one),
            11 => r.fdatasync(&one),
            12 => r.fsync_dir(["", "d", "e"][random.index(3)]),
            _ => r.pass([5, 900, 5100, 31_000][random.index(4)]),
        }
    }
}

/// Files of one sector, which fits an inode of 1 KiB, that grow out of it, are cut and made anew;
/// directories that fill their inodes and grow out of them.
pub fn in_inodes(r: &mut Recorder, seed: u64) {
    let mut random = Random::new(seed);
    for dir in ["d", "d/below"] {
        r.mkdir(dir);
    }
    let files = ["a", "d/b", "d/below/c", "e"];
    for path in files {
        r.create(path);
        r.write(path, 0, 1);
    }
    r.syncfs();
    for round in 0..40 {
        let path = files[random.index(files.len())];
        match random.below(9) {
            0 | 1 => r.write(path, 0, 1),
            2 => r.append(path, 1),
            3 => r.truncate(path, random.below(3)),
            4 => {
                // Made anew, so that it begins in its inode.
                r.unlink(path);
                r.create(path);
                r.write(path, 0, 1);
            }
            5 => r.replace(path, 1 + random.below(2)),
            6 => r.fallocate(path, FallocateMode::KeepSize, 0, 4),
            7 => r.hold(path),
            _ => r.release(),
        }
        match random.below(5) {
            0 => r.fsync(path),
            1 => r.fdatasync(path),
            2 => r.pass([5, 900, 5100][random.index(3)]),
            _ => {}
        }
        if round % 4 == 0 {
            let name = format!("d/name-{round}-{}", "y".repeat(random.index(120)));
            r.create(&name);
            if round % 8 == 0 {
                r.fsync_dir("d");
            }
        }
        if round == 20 {
            r.rename("d/below", "below", false);
            r.rename("below", "d/below", false);
        }
    }
    r.release();
    r.pass(6000);
}

/// Attributes with values in the inode, in its block and in inodes of their own: set, replaced,
/// removed, gone with their files, which some hold open.
pub fn values(r: &mut Recorder, seed: u64) {
    let mut random = Random::new(seed);
    let files = ["a", "b", "c"];
    for path in files {
        r.create(path);
        r.write(path, 0, 1);
        r.set_value(path, "user.v", 5000);
    }
    r.syncfs();
    for _ in 0..45 {
        let path = files[random.index(files.len())];
        match random.below(9) {
            0..=4 => {
                let name = ["user.v", "user.w", "trusted.x"][random.index(3)];
                let len = [0, 20, 300, 1500, 5000, 20_000][random.index(6)];
                // What is not there cannot be removed.
                r.set_value(path, name, 1);
                r.set_value(path, name, len);
            }
            5 => {
                r.unlink(path);
                r.create(path);
            }
            6 => r.replace(path, 1),
            7 => r.hold(path),
            _ => r.release(),
        }
        match random.below(5) {
            0 => r.fsync(path),
            1 => r.fsync_dir(""),
            2 => r.pass([5, 900, 5100][random.index(3)]),
            _ => {}
        }
    }
    r.release();
    r.pass(6000);
}

/// Files with holes smaller than a cluster: parts are punched, cut, zeroed and written again, so
/// that clusters lose blocks, get them back, and go to other files with what was in them.
pub fn clusters(r: &mut Recorder, seed: u64) {
    use FallocateMode::{KeepSize, PunchHole, ZeroRange};
    let mut random = Random::new(seed);
    let files = ["a", "b", "c"];
    for path in files {
        r.create(path);
        r.write(path, 0, 160);
    }
    r.syncfs();
    for _ in 0..50 {
        let path = files[random.index(files.len())];
        let size = r.size(path) / 512;
        let (at, len) = (random.below(size + 1), 1 + random.below(24));
        match random.below(9) {
            0 | 1 if at < size => r.fallocate(path, PunchHole, at, len),
            2 => r.truncate(path, random.below(size + 1)),
            3 => {
                r.unlink(path);
                r.create(path);
            }
            4 => r.fallocate(path, KeepSize, at, len),
            5 if at < size => r.fallocate(path, ZeroRange, at, len),
            6 => r.write(path, size + random.below(90), 1 + random.below(9)),
            _ => r.write(path, at, len),
        }
        match random.below(7) {
            0 => r.fsync(path),
            1 => r.fdatasync(path),
            2 => r.pass([5, 900, 5100][random.index(3)]),
            _ => {}
        }
    }
}
