#!/usr/bin/env python3
"""Captures real programs on a Syncline mount: what they ask for, and what reaches the device, of one run.

    capture.py SYNCLINE [NAME ...] [--out DIR] [--sync eager|ordered] [--scale X] [--list]

    for each NAME:   mke2fs on a file, syncline mount -o trace=DIR/NAME,trace_reads
                     the program works on the mount; its server and its input are outside
                     umount, then the two sides of the capture are compared
    leaves           DIR/NAME.calls.trace, NAME.pages.trace (before the cache), NAME.blocks.trace (after it)

Needs root or fusermount3, e2fsprogs, and the programs; one whose program is missing is left out, and the last lines
say why. Everything is generated here: pages, mails, packages, statements and the film. --scale 0.5 is what ships in
samples/; larger ones make larger traces.
"""
import argparse
import contextlib
import email.message
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import zipfile

import common
import downloads
from common import Failed, Missing, call, lab, need

IMAGE = "1G"
PAGES = 24
ROOT = os.geteuid() == 0


def run(command, timeout_s=600, **how):
    """Runs a program with a limit of time."""
    return call(*command, timeout=timeout_s, **how)


def words(rng, count):
    return " ".join("".join(rng.choice("aeioubcdfglmnprst") for _ in range(rng.randint(2, 9))) for _ in range(count))


@contextlib.contextmanager
def served(answer):
    """A web server; `answer(path)` gives a type and bytes."""

    def with_headers(path):
        kind, body = answer(path)
        return {"Content-Type": kind, "Cache-Control": "max-age=86400", "ETag": f'"{hash(path) & 0xffffffff:x}"'}, body

    with common.web(with_headers, lambda file, part: file.write(part)) as address:
        yield address


PAGE = """<!doctype html><meta charset=utf-8><title>{title}</title><link rel=stylesheet href=/style{style}.css>
<h1>{title}</h1>{text}{pictures}<script src=/script{style}.js></script><script>
document.cookie = "seen{nr}=" + Date.now() + "; max-age=86400";
localStorage.setItem("page{nr}", document.body.innerText.slice(0, 2000));
const open = indexedDB.open("reader", 1);
open.onupgradeneeded = () => open.result.createObjectStore("articles");
open.onsuccess = () => {{
  const store = open.result.transaction("articles", "readwrite").objectStore("articles");
  store.put(document.body.innerText, {nr});
}};
setTimeout(() => location.href = "{next}", {stay_ms});
</script>"""


def site(scale, over, stay_ms=900):
    """The pages of a small newspaper; each goes on to the next, and the last one calls `over`."""
    pages = int(PAGES * scale)

    def answer(path):
        rng = random.Random(path)
        name, _, rest = path.strip("/").partition(".")
        if name.startswith("page"):
            nr = int(name[4:])
            text = "".join(f"<p>{words(rng, rng.randint(40, 160))}</p>" for _ in range(rng.randint(6, 20)))
            pictures = "".join(f"<img src=/picture{nr}x{n}.png>" for n in range(rng.randint(3, 9)))
            following = f"/page{nr + 1}.html" if nr + 1 < pages else "/over.html"
            page = PAGE.format(title=words(rng, 5), text=text, pictures=pictures, nr=nr, style=nr % 4, next=following,
                               stay_ms=stay_ms)
            return "text/html", page.encode()
        if name.startswith("picture"):
            # Not a picture that can be drawn, but one that is fetched and cached.
            return "image/png", rng.randbytes(rng.choice([3000, 12000, 40000, 90000]))
        if name == "over":
            over.set()
            return "text/html", b"<title>end</title>"
        kind = {"css": "text/css", "js": "text/javascript"}.get(rest, "text/plain")
        return kind, f"/* {words(rng, 4000)} */".encode()

    return answer


def browse(mnt, work, scale, stay_ms=900):
    """A browser over the pages of a local server. Its profile is on the mount."""
    chromium = need("chromium", "chromium-browser", "google-chrome")
    over = threading.Event()
    profile = os.path.join(mnt, "profile")
    os.makedirs(profile, exist_ok=True)
    with served(site(scale, over, stay_ms)) as url:
        command = [chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                   "--disable-background-networking", "--disable-component-update", "--disable-crash-reporter",
                   f"--user-data-dir={profile}", "--remote-debugging-port=0", f"{url}/page0.html"]
        with open(os.devnull, "r+b") as null:
            # It leaves files of its own in there.
            browser = subprocess.Popen(command, stdin=null, stdout=null, stderr=null, env=dict(os.environ, TMPDIR=work))
            try:
                if not over.wait(60 + 3 * PAGES * scale):
                    raise RuntimeError("the browser did not come to the last page")
                # What it has not written yet is written at its end.
                time.sleep(2)
            finally:
                browser.terminate()
                browser.wait(30)


def mails(directory, first, last):
    """New mails in a Maildir, as a server has it."""
    for name in ("cur", "new", "tmp"):
        os.makedirs(os.path.join(directory, name), exist_ok=True)
    rng = random.Random(7 + first)
    for nr in range(first, last):
        mail = email.message.EmailMessage()
        mail["From"], mail["To"] = "news@mail.test", "user@example.com"
        mail["Subject"], mail["Message-ID"] = words(rng, 6), f"<{nr}@mail.test>"
        mail["Date"] = email.utils.format_datetime(email.utils.datetime.datetime(2024, 1, 1 + nr % 28, nr % 24))
        mail.set_content("\n".join(words(rng, 12) for _ in range(rng.randint(5, 120))))
        if nr % 6 == 0:
            mail.add_attachment(rng.randbytes(rng.randint(20_000, 300_000)), maintype="image", subtype="jpeg", filename="a.jpg")
        with open(os.path.join(directory, "new", f"{1700000000 + nr}.M{nr}P1.mail.test"), "wb") as file:
            file.write(bytes(mail))


def mail(mnt, work, scale):
    """A mail client (isync) that fetches an inbox from an IMAP server (dovecot), then what came since."""
    mbsync, imap = need("mbsync"), need("imap")
    inbox = os.path.join(work, "server")
    config = os.path.join(work, "dovecot.conf")
    version = run([need("dovecot"), "--version"]).split(".")[:2]
    with open(config, "w", encoding="utf-8") as file:
        if version >= ["2", "4"]:
            file.write("dovecot_config_version = 2.4.0\ndovecot_storage_version = 2.4.0\n"
                       f"mail_driver = maildir\nmail_path = {inbox}\n")
        else:
            file.write(f"mail_location = maildir:{inbox}\n")
        file.write(f"base_dir = {work}/run\nstate_dir = {work}/state\nlog_path = /dev/null\n"
                   f"first_valid_uid = 1\nssl = no\nmail_home = {inbox}\n")
    server = f"env HOME={inbox} USER={'nobody' if ROOT else os.environ.get('USER', 'user')} {imap} -c {config}"
    if ROOT:
        # It serves no mail as root.
        server = f"setpriv --reuid=nobody --regid=nogroup --clear-groups {server}"
    client = os.path.join(work, "mbsyncrc")
    box = os.path.join(mnt, "mail")
    os.makedirs(box, exist_ok=True)
    with open(client, "w", encoding="utf-8") as file:
        file.write(f"""IMAPStore far
Tunnel "{server}"

MaildirStore near
Path {box}/
Inbox {box}/INBOX
SubFolders Verbatim

Channel all
Far :far:
Near :near:
Create Near
SyncState *
""")
    count = int(250 * scale)
    os.chmod(work, 0o755)
    os.chmod(os.path.dirname(work), 0o755)
    for first, last in ((0, count), (count, count + int(40 * scale))):
        mails(inbox, first, last)
        if ROOT:
            run(["chown", "-R", "nobody:nogroup", inbox])
        run([mbsync, "-q", "-c", client, "all"], timeout_s=120)
    got = sum(len(files) for _, _, files in os.walk(os.path.join(box, "INBOX")))
    if got < count:
        raise RuntimeError(f"{got} files of {count} mails")


def packages(work, count, rng):
    """Debian packages with files like those of a program: many small ones, some large."""
    debs = []
    for nr in range(count):
        tree = os.path.join(work, f"deb{nr}")
        os.makedirs(os.path.join(tree, "DEBIAN"))
        with open(os.path.join(tree, "DEBIAN/control"), "w", encoding="utf-8") as file:
            file.write(f"Package: sample{nr}\nVersion: 1.0\nArchitecture: all\nMaintainer: A <a@example.com>\n"
                       f"Description: {words(rng, 6)}\n")
        for part in ("bin", "lib", "share/doc", "share/locale"):
            where = os.path.join(tree, "usr", part, f"sample{nr}")
            os.makedirs(where)
            for file_nr in range(rng.randint(4, 24)):
                with open(os.path.join(where, f"f{file_nr}"), "wb") as file:
                    file.write(rng.randbytes(int(rng.paretovariate(0.9) * 1500) % 900_000))
        deb = os.path.join(work, f"sample{nr}.deb")
        run([need("dpkg-deb"), "--root-owner-group", "-Znone", "-b", tree, deb])
        debs.append(deb)
    return debs


def dpkg(mnt, work, scale):
    """A package manager that installs packages, then removes a few."""
    debs = packages(work, int(8 * scale), random.Random(11))
    root = os.path.join(mnt, "root")
    for part in ("info", "updates", "triggers", "parts", "alternatives"):
        os.makedirs(os.path.join(root, "var/lib/dpkg", part))
    for name in ("status", "available"):
        open(os.path.join(root, "var/lib/dpkg", name), "w", encoding="utf-8").close()
    command = [need("dpkg"), f"--root={root}", "--force-not-root", "--force-bad-path", "--log=/dev/null", "--no-triggers"]
    run(command + ["-i"] + debs)
    run(command + ["-P", "sample0", "sample1"])


def pip(mnt, work, scale):
    """A Python installer that unpacks wheels and compiles what is in them."""
    rng = random.Random(13)
    wheels = []
    for nr in range(int(6 * scale)):
        name = f"sample{nr}"
        wheel = os.path.join(work, f"{name}-1.0-py3-none-any.whl")
        record = []
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as out:
            def put(path, text):
                out.writestr(path, text)
                record.append(f"{path},,")
            for module in range(rng.randint(10, 50)):
                lines = "\n".join(f"def {words(rng, 1)}{n}(x):\n    return x + {n}" for n in range(rng.randint(2, 60)))
                put(f"{name}/m{module}.py", lines + "\n")
            put(f"{name}/__init__.py", "")
            put(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            put(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: a\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            record.append(f"{name}-1.0.dist-info/RECORD,,")
            out.writestr(f"{name}-1.0.dist-info/RECORD", "\n".join(record) + "\n")
        wheels.append(wheel)
    env = dict(os.environ, TMPDIR=work, PIP_CACHE_DIR=os.path.join(work, "cache"), PIP_DISABLE_PIP_VERSION_CHECK="1")
    run([sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--root-user-action=ignore",
         f"--prefix={mnt}/prefix"] + wheels, env=env)


def pocketdata(mnt, _work, scale):
    """A phone app on SQLite in the shape of PocketData's YCSB A: half reads, half updates of 10 text fields, by a skewed key."""
    rng = random.Random(17)
    db = sqlite3.connect(os.path.join(mnt, "app.db"), isolation_level=None)
    db.execute("PRAGMA journal_mode=DELETE")
    db.execute("PRAGMA synchronous=FULL")
    fields = ", ".join(f"field{n} TEXT" for n in range(10))
    db.execute(f"CREATE TABLE usertable (key TEXT PRIMARY KEY, {fields})")
    rows = 500
    db.execute("BEGIN")
    for key in range(rows):
        db.execute(f"INSERT INTO usertable VALUES (?{', ?' * 10})", [f"user{key}"] + [words(rng, 16)[:100] for _ in range(10)])
    db.execute("COMMIT")
    for _ in range(int(900 * scale)):
        key = f"user{min(int(rng.paretovariate(0.7)), rows) - 1}"
        if rng.random() < 0.5:
            db.execute("SELECT * FROM usertable WHERE key = ?", [key]).fetchall()
        else:
            field = f"field{rng.randrange(10)}"
            db.execute(f"UPDATE usertable SET {field} = ? WHERE key = ?", [words(rng, 16)[:100], key])
    db.close()


def rlbench(mnt, _work, scale):
    """A database test in the shape of RL Bench: thousands of inserts with and without a transaction, indexes, ranges, updates,
    deletes; in WAL mode."""
    rng = random.Random(19)
    db = sqlite3.connect(os.path.join(mnt, "rl.db"), isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    count = int(1000 * scale)
    row = lambda n: (n, rng.randrange(100_000), words(rng, 8))  # noqa: E731
    for table, together in (("one", False), ("two", True), ("three", True)):
        db.execute(f"CREATE TABLE {table} (a INTEGER, b INTEGER, c TEXT)")
        if table == "three":
            db.execute("CREATE INDEX at_b ON three (b)")
        if together:
            db.execute("BEGIN")
        for n in range(count * (8 if together else 1)):
            db.execute(f"INSERT INTO {table} VALUES (?, ?, ?)", row(n))
        if together:
            db.execute("COMMIT")
    for low in range(0, count // 10):
        db.execute("SELECT count(*), avg(b) FROM three WHERE b >= ? AND b < ?", [low * 100, low * 100 + 1000]).fetchall()
    for low in range(0, count // 2):
        db.execute("UPDATE three SET c = ? WHERE b >= ? AND b < ?", [words(rng, 8), low * 50, low * 50 + 10])
    db.execute("INSERT INTO one SELECT b, a, c FROM two")
    db.execute("DELETE FROM two WHERE c LIKE '%a%'")
    db.execute("DROP TABLE three")
    db.close()


def video(mnt, _work, scale):
    """A film that is downloaded in parts by curl, part by part appended, and read while it grows."""
    curl = need("curl")
    film = random.Random(23).randbytes(int((48 << 20) * scale))
    part = 4 << 20
    path = os.path.join(mnt, "film.mp4")
    with served(lambda _: ("video/mp4", film)) as url:
        for at in range(0, len(film), part):
            with open(path, "ab") as file:
                subprocess.run([curl, "-sS", "-r", f"{at}-{at + part - 1}", f"{url}/film.mp4"], stdin=subprocess.DEVNULL,
                               stdout=file, check=True, timeout=120)
            with open(path, "rb") as file:
                file.seek(at // 2)
                file.read(1 << 20)
    if os.path.getsize(path) != len(film):
        raise RuntimeError("the film is not whole")


def git(mnt, work, scale):
    """A repository that is cloned, worked on with commits, and packed."""
    need("git")
    origin = os.path.join(work, "origin")
    env = dict(os.environ, GIT_CONFIG_NOSYSTEM="1", HOME=work, GIT_AUTHOR_NAME="A", GIT_AUTHOR_EMAIL="a@example.com",
               GIT_COMMITTER_NAME="A", GIT_COMMITTER_EMAIL="a@example.com")
    rng = random.Random(29)
    run(["git", "init", "-q", "-b", "main", origin])

    def commits(directory, count, *more):
        for nr in range(count):
            for _ in range(rng.randint(1, 12)):
                path = os.path.join(directory, f"d{rng.randrange(12)}", f"f{rng.randrange(40)}.txt")
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "a", encoding="utf-8") as file:
                    file.write("\n".join(words(rng, 10) for _ in range(rng.randint(1, 40))) + "\n")
            run(["git", "-C", directory, "add", "-A"], env=env)
            run(["git", "-C", directory, *more, "commit", "-q", "-m", f"change {nr}"], env=env)

    commits(origin, int(60 * scale))
    clone = os.path.join(mnt, "clone")
    run(["git", "clone", "-q", "--no-local", origin, clone], env=env)
    commits(clone, int(30 * scale), "-c", "core.fsync=all")
    run(["git", "-C", clone, "gc", "-q"], env=env)


def download(name):
    """The program that downloads a file with one of the clients."""

    def program(mnt, work, scale):
        downloads.fetch(name, mnt, work, downloads.content(int((128 << 20) * scale)), 16 << 20)

    program.__doc__ = f"A file that is downloaded by {downloads.CLIENTS[name][2].__doc__}"
    return program


# name, what it does, a capture whose volume it goes on with
PROGRAMS = [
    ("chromium-cold", browse, None),
    ("chromium-warm", browse, "chromium-cold"),
    ("mail", mail, None),
    ("dpkg", dpkg, None),
    ("pip", pip, None),
    ("pocketdata", pocketdata, None),
    ("rlbench", rlbench, None),
    ("video", video, None),
    ("git", git, None),
    *((f"download-{name}", download(name), None) for name in downloads.CLIENTS),
]


def stat(syncline, path):
    return common.document(lab(syncline), "trace", "stat", path)["statistics"]


def capture(syncline, name, program, image, out, sync, scale):
    """One program on one mount; says what was captured."""
    with tempfile.TemporaryDirectory(prefix="capture-") as work:
        mnt = os.path.join(work, "mnt")
        os.mkdir(mnt)
        # What is beside the mount: servers and their files.
        beside = os.path.join(work, "beside")
        os.mkdir(beside)
        trace = os.path.join(out, name)
        run([syncline, "mount", "-o", f"sync={sync},trace_reads,trace={trace}", image, mnt])
        try:
            program(mnt, beside, scale)
        finally:
            # Its processes may be about to end.
            for _ in range(50):
                done = subprocess.run([syncline, "umount", mnt], capture_output=True, text=True)
                if done.returncode == 0 or "busy" not in done.stderr:
                    break
                time.sleep(0.2)
        if done.returncode != 0:
            raise Failed(done.stderr.strip())
    run([lab(syncline), "trace", "import", f"{trace}.events", "-o", trace])
    os.remove(f"{trace}.events")
    calls, blocks = (stat(syncline, f"{trace}.{kind}.trace") for kind in ("calls", "blocks"))
    if name.startswith("download-"):
        # Only the calls are looked at.
        for kind in ("pages", "blocks"):
            os.remove(f"{trace}.{kind}.trace")
    return (f"{name}: {calls['records']} calls, {calls['files']} files, {calls['write']['bytes'] / 1e6:.1f} MB written, "
            f"{calls['sync_calls']} syncs in {calls['duration_s']:.0f} s; {blocks['write']['calls']} block writes of "
            f"{blocks['write']['bytes'] / 1e6:.1f} MB, {dict(blocks['calls']).get('flush', 0)} flushes")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("syncline", help="the binary")
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs to capture; all by default")
    parser.add_argument("--out", default="target/captures", help="where the traces go")
    parser.add_argument("--sync", default="eager", choices=["eager", "ordered"], help="mode of the mount")
    parser.add_argument("--scale", type=float, default=1.0, help="how much the programs do")
    parser.add_argument("--list", action="store_true", help="say which there are")
    args = parser.parse_args()
    if args.list:
        for name, program, _ in PROGRAMS:
            print(f"{name}: {' '.join(program.__doc__.split())}")
        return 0
    known = {name for name, _, _ in PROGRAMS}
    if unknown := set(args.names) - known:
        print(f"capture.py: no program {', '.join(sorted(unknown))}; see --list", file=sys.stderr)
        return 2
    wanted = set(args.names) or known
    out, syncline = os.path.abspath(args.out), os.path.abspath(args.syncline)
    os.makedirs(out, exist_ok=True)
    left_out, failed = [], 0
    mke2fs = need("mke2fs")
    with tempfile.TemporaryDirectory(prefix="capture-images-") as images:
        for name, program, after in PROGRAMS:
            if name not in wanted and name not in {a for n, _, a in PROGRAMS if n in wanted}:
                continue
            image = os.path.join(images, f"{after or name}.img")
            try:
                if not after:
                    run([mke2fs, "-q", "-t", "ext4", "-E", "nodiscard", image, IMAGE])
                print(capture(syncline, name, program, image, out, args.sync, args.scale), flush=True)
            except Missing as err:
                left_out.append(f"{name}: left out, {err}")
                for kind in ("calls", "pages", "blocks"):
                    os.remove(os.path.join(out, f"{name}.{kind}.trace"))
            except (Failed, RuntimeError, subprocess.SubprocessError, OSError) as err:
                left_out.append(f"{name}: failed, {err}")
                failed = 1
    for line in left_out:
        print(line, file=sys.stderr)
    return failed


if __name__ == "__main__":
    sys.exit(main())
