//! A sweep on processes of this machine: each task is the command with `--json`, in a child.
//!
//! The driver keeps as many children as it is told; a thread reads what each says. A child that was
//! killed runs again; one that is killed each time, at last with no other beside it, is a row with
//! an error.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use serde_json::Value;

use super::document::{self, SYNC};
use super::plan::{Kind, Plan, Task};
use super::results::Results;
use crate::args::Sweep;
use syncline_cli::error::{Failure, Result};
use syncline_cli::{complain, interrupt, progress};

/// The line of `--version`. A sweep of another version cannot be resumed.
const VERSION: &str = concat!("syncline-lab ", env!("CARGO_PKG_VERSION"));
/// Times that a task may be killed among others; then it runs with no other beside it.
const LOST_AMONG_OTHERS_MAX: u32 = 3;
/// Times that it may be killed alone; then it is a row with an error.
const LOST_ALONE_MAX: u32 = 3;
/// Longest part of standard error that becomes a row's error, letters.
const ERROR_LETTERS_MAX: usize = 2000;
/// Longest wait of a Ctrl-C.
const TICK: Duration = Duration::from_millis(100);

/// Runs the plan; fails if a task did.
pub(super) fn run(args: &Sweep) -> Result<()> {
    let plan = Plan::load(&args.plan)?;
    let tasks = plan.tasks()?;
    let mut results = Results::open(&args.output, &plan.document(VERSION), args.resume)?;
    let keys: Vec<String> = tasks.iter().map(Task::key).collect();
    let todo = tasks.into_iter().zip(&keys).filter(|(_, key)| !results.rows.contains_key(*key));
    let todo: VecDeque<Task> = todo.map(|(task, _)| task).collect();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = args.workers.map_or(processors, |workers| workers.max(1) as usize);
    let program = std::env::current_exe().map_err(|err| Failure::host(&args.plan, &err))?;
    let bar = progress::bar("sweep", todo.len() as u64);
    let mut driver = Driver::new(program, &plan.kind, workers, todo);
    let ended = driver.run(&mut results, || bar.add(1));
    bar.clear();
    if matches!(ended, Err(Failure::Interrupted)) {
        let at = args.output.display();
        complain(&format!("interrupted; {at} holds what was done, go on with --resume"));
        return Err(Failure::Said(Failure::Interrupted.code()));
    }
    ended?;
    let errors: Vec<&String> =
        keys.iter().filter_map(|key| results.rows.get(key)?.as_ref()).collect();
    println!("{} rows in {}", keys.len(), args.output.display());
    match errors.first() {
        None => Ok(()),
        Some(first) => {
            Err(Failure::Failed(format!("{} tasks failed, the first: {first}", errors.len())))
        }
    }
}

/// Output of a child by its number: standard output and standard error.
type Said = (u64, Vec<u8>, Vec<u8>);

struct Driver<'a> {
    program: PathBuf,
    kind: &'a Kind,
    workers: usize,
    queue: VecDeque<Task>,
    /// Tasks that were killed too often among others.
    suspects: VecDeque<Task>,
    lost: HashMap<String, u32>,
    running: HashMap<u64, (Child, Task, String)>,
    started: u64,
    said: (Sender<Said>, Receiver<Said>),
}

impl Drop for Driver<'_> {
    fn drop(&mut self) {
        for (child, ..) in self.running.values_mut() {
            // One that has ended needs no kill, and is reaped all the same.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl<'a> Driver<'a> {
    fn new(program: PathBuf, kind: &'a Kind, workers: usize, queue: VecDeque<Task>) -> Driver<'a> {
        Driver {
            program,
            kind,
            workers,
            queue,
            suspects: VecDeque::new(),
            lost: HashMap::new(),
            running: HashMap::new(),
            started: 0,
            said: channel(),
        }
    }

    /// Runs everything; `tell` is called for each row.
    fn run(&mut self, results: &mut Results, tell: impl Fn()) -> Result<()> {
        loop {
            interrupt::check()?;
            while self.running.len() < self.workers {
                let Some(task) = self.next() else { break };
                if let Err(error) = self.start(&task) {
                    results.add(document::row(&task, VERSION, &self.kind.columns, Err(error)))?;
                    tell();
                }
            }
            if self.running.is_empty() {
                return Ok(());
            }
            let said = match self.said.1.recv_timeout(TICK) {
                Ok(said) => said,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            if let Some((task, found)) = self.ended(said)? {
                results.add(document::row(&task, VERSION, &self.kind.columns, found))?;
                tell();
            }
        }
    }

    /// The task that may begin now: a suspect only with no other beside it.
    fn next(&mut self) -> Option<Task> {
        let alone = self.running.is_empty();
        self.queue.pop_front().or_else(|| if alone { self.suspects.pop_front() } else { None })
    }

    /// Begins a task. Options that the command does not have are the task's error.
    fn start(&mut self, task: &Task) -> std::result::Result<(), String> {
        let (words, sync) = arguments(task, self.kind)?;
        let mut command = Command::new(&self.program);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A group of its own: Ctrl-C on a terminal is for the driver, which ends its children.
        let spawned = command.process_group(0).spawn();
        let mut child = spawned.map_err(|err| format!("a process cannot begin: {err}"))?;
        let pipes = (child.stdout.take(), child.stderr.take());
        let (id, to) = (self.started, self.said.0.clone());
        std::thread::spawn(move || {
            let complaints = std::thread::spawn(move || all(pipes.1));
            let text = all(pipes.0);
            // The driver that went away needs no answer.
            let _ = to.send((id, text, complaints.join().unwrap_or_default()));
        });
        self.started += 1;
        self.running.insert(id, (child, task.clone(), sync));
        Ok(())
    }

    /// Result of a child that has closed its output; nothing for one that runs again.
    #[allow(clippy::type_complexity)]
    fn ended(
        &mut self,
        (id, text, complaints): Said,
    ) -> Result<Option<(Task, std::result::Result<Value, String>)>> {
        let Some((mut child, task, sync)) = self.running.remove(&id) else { return Ok(None) };
        let status = child.wait().map_err(|err| Failure::host(&self.program, &err))?;
        if let Some(signal) = status.signal() {
            return Ok(self.again(task, signal));
        }
        let found = answer(status, &text, &complaints);
        let found = found.map(|document| document::named(document, &task, &sync));
        Ok(Some((task, found)))
    }

    /// Runs a killed task again, or gives it up.
    fn again(
        &mut self,
        task: Task,
        signal: i32,
    ) -> Option<(Task, std::result::Result<Value, String>)> {
        let lost = self.lost.entry(task.key()).or_default();
        *lost += 1;
        match *lost {
            lost if lost < LOST_AMONG_OTHERS_MAX => self.queue.push_back(task),
            lost if lost < LOST_AMONG_OTHERS_MAX + LOST_ALONE_MAX => self.suspects.push_back(task),
            lost => {
                let what = &self.kind.name;
                let why = format!("`syncline {what}` was ended by signal {signal}");
                let alone = "at last with no other task beside it";
                let text = format!("lost {lost} times, {alone}: {why}; look at the memory");
                return Some((task, Err(text)));
            }
        }
        None
    }
}

/// Everything that a pipe gives.
fn all(pipe: Option<impl Read>) -> Vec<u8> {
    let mut text = Vec::new();
    if let Some(mut pipe) = pipe {
        // A pipe that fails is as one that ended: the status tells.
        let _ = pipe.read_to_end(&mut text);
    }
    text
}

/// The document of a command that ended, or its complaint.
fn answer(
    status: ExitStatus,
    text: &[u8],
    complaints: &[u8],
) -> std::result::Result<Value, String> {
    if status.success() {
        return serde_json::from_slice(text).map_err(|err| format!("no document: {err}"));
    }
    let complaints = String::from_utf8_lossy(complaints);
    let complaint = complaints.trim();
    let letters = complaint.chars().count();
    let kept: String = complaint.chars().skip(letters.saturating_sub(ERROR_LETTERS_MAX)).collect();
    Err(kept.strip_prefix("syncline-lab: ").unwrap_or(&kept).to_owned())
}

/// The words of a command for one configuration, and the mode of `bench`.
fn arguments(task: &Task, kind: &Kind) -> std::result::Result<(Vec<String>, String), String> {
    let bench = kind.name == "bench";
    let (mut flags, rest) = options(task, kind)?;
    let mut words = vec![kind.name.clone()];
    if bench {
        let workload = task.get("workload").unwrap_or("replay");
        // `create` has one test, which its command does not name.
        let workload = workload.strip_suffix("/4k-fsync").unwrap_or(workload);
        words.extend(workload.split('/').map(str::to_owned));
        flags.entry("sync".to_owned()).or_insert(Some(SYNC.to_owned()));
        if !rest.is_empty() {
            words.extend(["-o".to_owned(), rest.join(",")]);
        }
    }
    let sync = flags.get("sync").cloned().flatten().unwrap_or_default();
    let mut set = |name: &str, value: Option<String>| {
        if value.is_some() {
            flags.insert(name.to_owned(), value);
        }
    };
    for name in ["policy", "size", "device"] {
        set(name, task.get(name).map(str::to_owned));
    }
    set("seed", task.fields["seed"].as_i64().map(|seed| seed.to_string()));
    set("jobs", (kind.name == "cache").then(|| "1".to_owned()));
    set("trace", task.location.as_deref().map(Path::to_string_lossy).map(Into::into));
    for (name, value) in flags {
        words.push(format!("--{}", name.replace('_', "-")));
        words.extend(value);
    }
    words.push("--json".to_owned());
    if kind.name != "lifetime" {
        words.push("-".to_owned());
    }
    Ok((words, sync))
}

/// Options that are the command's own, and for `bench` those of the mount.
#[allow(clippy::type_complexity)]
fn options(
    task: &Task,
    kind: &Kind,
) -> std::result::Result<(BTreeMap<String, Option<String>>, Vec<String>), String> {
    let (mut flags, mut rest) = (BTreeMap::new(), Vec::new());
    let given = task.get("options").unwrap_or_default().split(',');
    for option in given.filter(|option| !option.is_empty()) {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (option, None),
        };
        if kind.options.iter().any(|known| known == name) {
            flags.insert(name.to_owned(), value);
        } else if kind.name == "bench" {
            rest.push(option.to_owned());
        } else {
            let (what, known) = (&kind.name, kind.options.join(", "));
            return Err(format!("unknown option `{name}` of `{what}`; known are {known}"));
        }
    }
    Ok((flags, rest))
}
