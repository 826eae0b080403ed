//! One case in its directory: who does what, what is remembered between the steps.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, Stat};
use rustix::process::{Gid, Uid};

use crate::posix::calls::{self, Answer, failed};
use crate::posix::script::expand;

/// Time for which a file system's clock may stand still before a case gives up.
const CLOCK_TIMEOUT: Duration = Duration::from_secs(120);

/// The state of a case.
pub(crate) struct Runner {
    other: PathBuf,
    held: BTreeMap<String, File>,
    remembered: BTreeMap<String, Stat>,
    programs: Vec<(Child, File)>,
    probes: u32,
}

/// A user: uid, gid, more groups.
struct User(u32, u32, Vec<u32>);

impl Runner {
    /// Gives the calling thread `home` as working directory and a umask of its own.
    pub fn new(home: &Path, other: &Path) -> Result<Runner, String> {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS)
            .map_err(|err| format!("no working directory of its own: {err}; run this as root"))?;
        rustix::process::chdir(home)
            .map_err(|err| format!("{}: {err}; give a directory", home.display()))?;
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
        Ok(Runner {
            other: other.to_owned(),
            held: BTreeMap::new(),
            remembered: BTreeMap::new(),
            programs: Vec::new(),
            probes: 0,
        })
    }

    /// Carries a line out; gives the wanted and the real answer.
    pub fn step(&mut self, text: &str) -> Result<(String, String), String> {
        let (line, wanted) = match text.split_once("->") {
            Some((line, wanted)) => (line.trim(), wanted.trim()),
            None => (text, "ok"),
        };
        let mut words = line.split_whitespace();
        let mut first = words.next().unwrap_or_default();
        let mut user = None;
        if first == "as" {
            user = Some(user_of(words.next().unwrap_or_default())?);
            first = words.next().unwrap_or_default();
        }
        let words: Vec<OsString> = words.map(|word| expand(word, &self.other)).collect();
        let got = match user {
            None => self.operation(first, &words)?,
            Some(user) => self.as_user(&user, first, &words)?,
        };
        Ok((wanted.to_owned(), got))
    }

    /// Runs one operation on a thread that has become another user: Linux keeps users by thread.
    fn as_user(&mut self, user: &User, name: &str, words: &[OsString]) -> Result<String, String> {
        let run = || {
            let (uid, gid) = (Uid::from_raw(user.0), Gid::from_raw(user.1));
            let groups: Vec<Gid> = user.2.iter().map(|gid| Gid::from_raw(*gid)).collect();
            rustix::thread::set_thread_groups(&groups)
                .and_then(|()| rustix::thread::set_thread_res_gid(gid, gid, gid))
                .and_then(|()| rustix::thread::set_thread_res_uid(uid, uid, uid))
                .map_err(|err| format!("cannot become user {}: {err}; run this as root", user.0))?;
            self.operation(name, words)
        };
        let ran = std::thread::scope(|scope| scope.spawn(run).join());
        ran.map_err(|_| format!("{name} panicked"))?
    }

    fn operation(&mut self, name: &str, words: &[OsString]) -> Result<String, String> {
        let text = |at: usize| words.get(at).and_then(|word| word.to_str()).unwrap_or_default();
        let answer = match name {
            "hold" => calls::open(words.get(1).map_or(OsStr::new(""), |w| w), text(2), text(3))?
                .map(|file| {
                    self.held.insert(text(0).to_owned(), file);
                    "ok".to_owned()
                }),
            "drop" => {
                self.held.remove(text(0));
                Ok("ok".to_owned())
            }
            "remember" => self.remember(words),
            "moved" => self.moved(&words[0]),
            "same" => same(&words[0], &words[1]),
            "start" => self.start(&words[0]),
            "stop" => {
                self.stop();
                Ok("ok".to_owned())
            }
            _ if name.starts_with('@') => {
                let Some(file) = self.held.get(text(0)) else {
                    return Ok("not open".to_owned());
                };
                calls::on_file(&name[1..], file, &words[1..])?
            }
            _ => calls::on_path(name, words)?,
        };
        Ok(answer.unwrap_or_else(calls::name_of))
    }

    /// Notes the times of these paths, and waits until the file system's clock has moved on.
    fn remember(&mut self, words: &[OsString]) -> Answer {
        let mut last = (0, 0);
        for word in words {
            let stat = lstat(word)?;
            last = last.max((stat.st_ctime, stat.st_ctime_nsec));
            self.remembered.insert(word.to_string_lossy().into_owned(), stat);
        }
        let began = Instant::now();
        loop {
            self.probes += 1;
            // Beside the case's directory, whose own times the case may be about.
            let here = std::env::current_dir().map_err(failed)?;
            let above = here.parent().unwrap_or(&here);
            let probe = above.join(format!("probe-{}", self.probes));
            File::create(&probe).map_err(failed)?;
            let stat = lstat(probe.as_os_str());
            std::fs::remove_file(&probe).map_err(failed)?;
            let stat = stat?;
            if (stat.st_ctime, stat.st_ctime_nsec) > last {
                return Ok("ok".to_owned());
            }
            if began.elapsed() > CLOCK_TIMEOUT {
                return Ok("the clock stands still".to_owned());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Compares the times of a remembered path with the present ones. Answers the letters of those
    /// that differ (a, m, c), or `none`.
    fn moved(&self, word: &OsStr) -> Answer {
        let Some(was) = self.remembered.get(&*word.to_string_lossy()) else {
            return Ok("not remembered".to_owned());
        };
        let is = lstat(word)?;
        let mut letters = String::new();
        let times = [
            ('a', (was.st_atime, was.st_atime_nsec) != (is.st_atime, is.st_atime_nsec)),
            ('m', (was.st_mtime, was.st_mtime_nsec) != (is.st_mtime, is.st_mtime_nsec)),
            ('c', (was.st_ctime, was.st_ctime_nsec) != (is.st_ctime, is.st_ctime_nsec)),
        ];
        letters.extend(times.iter().filter(|(_, moved)| *moved).map(|(letter, _)| letter));
        Ok(if letters.is_empty() { "none".to_owned() } else { letters })
    }

    /// Makes a program at the path and leaves it running.
    fn start(&mut self, word: &OsStr) -> Answer {
        // By a program of its own: a descriptor of ours that is open for writing could be
        // inherited by what another thread starts at this moment.
        let copied = Command::new("cp").arg("/bin/sleep").arg(word).status();
        if !copied.map_err(failed)?.success() {
            return Ok("not copied".to_owned());
        }
        let program = std::env::current_dir().map_err(failed)?.join(word);
        let mut command = Command::new(program);
        command.arg("1000").stdin(Stdio::null()).current_dir("/");
        let file = File::open(word).map_err(failed)?;
        self.programs.push((command.spawn().map_err(failed)?, file));
        Ok("ok".to_owned())
    }

    fn stop(&mut self) {
        for (mut program, file) in self.programs.drain(..) {
            let _ = program.kill();
            let _ = program.wait();
            // A reader of the process in /proc keeps its program running a bit longer.
            let again = format!("/proc/self/fd/{}", file.as_raw_fd());
            let began = Instant::now();
            while calls::open(OsStr::new(&again), "w", "")
                .is_ok_and(|tried| tried.is_err_and(|errno| errno == rustix::io::Errno::TXTBSY))
                && began.elapsed() < CLOCK_TIMEOUT
            {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.stop();
        // A thread that is joined may still hold its working directory, and so its mount.
        let _ = rustix::process::chdir("/");
    }
}

fn user_of(word: &str) -> Result<User, String> {
    let mut parts = word.split(':');
    let mut next = || parts.next().unwrap_or_default();
    let (uid, gid, groups) = (next(), next(), next());
    let number = |text: &str| text.parse().map_err(|_| format!("{word}: write UID:GID[:GROUP,..]"));
    let groups = groups.split(',').filter(|text| !text.is_empty()).map(number);
    Ok(User(number(uid)?, number(gid)?, groups.collect::<Result<_, _>>()?))
}

fn lstat(word: &OsStr) -> Result<Stat, rustix::io::Errno> {
    rustix::fs::statat(CWD, word, AtFlags::SYMLINK_NOFOLLOW)
}

fn same(one: &OsStr, two: &OsStr) -> Answer {
    let (one, two) = (lstat(one)?, lstat(two)?);
    let same = (one.st_dev, one.st_ino) == (two.st_dev, two.st_ino);
    Ok(if same { "yes" } else { "no" }.to_owned())
}
