//! Judges states and reports failures with the one command that reruns each.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::crash::{Budget, CrashDevice, CrashState, Exploration, Explorer, StateId};

/// The environment variable through which a test gets the id of the state to rerun. Nothing here
/// reads it: the caller parses it into [`Budget::only`].
const RERUN_VARIABLE: &str = "SYNCLINE_CRASH_STATE";

/// A state that the judge refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Identity of the state.
    pub id: StateId,
    /// The judge's error.
    pub message: String,
    /// The writes that are there and lost.
    pub description: String,
    /// The command that judges this state alone.
    pub rerun: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "crash state {} fails: {}", self.id, self.message)?;
        writeln!(f, "{}", self.description)?;
        write!(f, "rerun: {}", self.rerun)
    }
}

/// Counts of judged states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// States of the log itself.
    pub exploration: Exploration,
    /// States judged: the distinct ones, or those within recovery.
    pub judged: u64,
    /// States refused, up to [`Budget::failures_max`].
    pub failures: Vec<Failure>,
}

impl Summary {
    /// The failures as one text.
    pub fn into_result(self) -> Result<Summary, String> {
        if self.failures.is_empty() {
            return Ok(self);
        }
        let texts: Vec<String> = self.failures.iter().map(Failure::to_string).collect();
        Err(texts.join("\n\n"))
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Exploration { cuts, possible, candidates, duplicates, elsewhere, .. } =
            self.exploration;
        write!(f, "{} states judged, {} refused ", self.judged, self.failures.len())?;
        write!(f, "({cuts} cuts, {candidates} of {possible} combinations, ")?;
        write!(f, "{duplicates} equal to others, {elsewhere} in other shards)")
    }
}

/// Judges the states of a budget. `command` is what a person types to run the calling test alone,
/// for example `cargo test -p syncline-fs --test it crash::rename`.
///
/// With [`Budget::only`] just that state is judged; an id that is not in the log is a failure.
pub fn run(
    explorer: &Explorer,
    budget: &Budget,
    command: &str,
    mut judge: impl FnMut(&CrashState) -> Result<(), String>,
) -> Summary {
    let mut summary = Summary::default();
    if let Some(id) = &budget.only {
        let verdict = match explorer.state(id) {
            Ok(state) => judge(&state),
            Err(error) => Err(error.to_string()),
        };
        summary.judged = 1;
        let description = || explorer.describe(id);
        summary.failures.extend(failure(id, verdict, description, command));
        return summary;
    }
    let (mut judged, mut failures) = (0, Vec::new());
    summary.exploration = explorer.for_each_state(budget, |state| {
        judged += 1;
        let description = || explorer.describe(&state.id);
        failures.extend(failure(&state.id, judge(&state), description, command));
        stop_at(budget, &failures)
    });
    Summary { judged, failures, ..summary }
}

/// Cuts recovery: for every state of the outer budget `recover` runs on a new device over it, and
/// the states of that log within the inner budget (the last one is the recovered image) are
/// judged. Marks are those of the outer cut, followed by any that `recover` sets.
///
/// With [`Budget::only`] of the outer budget just that state, and with its inner part just that
/// cut.
pub fn run_nested(
    explorer: &Explorer,
    budget: &Budget,
    inner_budget: &Budget,
    command: &str,
    mut recover: impl FnMut(Arc<CrashDevice>) -> Result<(), String>,
    mut judge: impl FnMut(&CrashState) -> Result<(), String>,
) -> Summary {
    let (mut judged, mut failures) = (0, Vec::new());
    let mut one = |state: CrashState, only: Option<StateId>, failures: &mut Vec<Failure>| {
        let device = Arc::new(CrashDevice::new(&state.image, explorer.log().options));
        if let Err(message) = recover(device.clone()) {
            let verdict = Err(format!("recovery failed: {message}"));
            let description = || explorer.describe(&state.id);
            failures.extend(failure(&state.id, verdict, description, command));
            return stop_at(budget, failures);
        }
        let inner = Explorer::after(device.log(), explorer.options(), state.marks());
        let inner_budget = inner_budget.clone().with_only(only);
        let found = run(&inner, &inner_budget, command, &mut judge);
        judged += found.judged;
        failures.extend(found.failures.into_iter().map(|f| f.within(&state.id, explorer, command)));
        stop_at(budget, failures)
    };
    let Some(id) = &budget.only else {
        let exploration = explorer.for_each_state(budget, |state| one(state, None, &mut failures));
        return Summary { exploration, judged, failures };
    };
    let outer = StateId { inner: None, ..id.clone() };
    match explorer.state(&outer) {
        Ok(state) => {
            // One state only: there is nothing to stop.
            let _ = one(state, id.inner.as_deref().cloned(), &mut failures);
        }
        Err(error) => {
            let description = || explorer.describe(&outer);
            failures.extend(failure(&outer, Err(error.to_string()), description, command));
        }
    }
    Summary { exploration: Exploration::default(), judged, failures }
}

impl Failure {
    /// The failure of a cut within the recovery of `outer`.
    fn within(self, outer: &StateId, explorer: &Explorer, command: &str) -> Failure {
        let before = explorer.describe(outer);
        let description = format!("{before}\nand in its recovery: {}", self.description);
        let id = StateId { inner: Some(Box::new(self.id)), ..outer.clone() };
        let rerun = rerun(&id, command);
        Failure { id, message: self.message, description, rerun }
    }
}

fn rerun(id: &StateId, command: &str) -> String {
    format!("{RERUN_VARIABLE}={id} {command}")
}

fn failure(
    id: &StateId,
    verdict: Result<(), String>,
    description: impl Fn() -> String,
    command: &str,
) -> Option<Failure> {
    let message = verdict.err()?;
    let rerun = rerun(id, command);
    Some(Failure { id: id.clone(), message, description: description(), rerun })
}

fn stop_at(budget: &Budget, failures: &[Failure]) -> ControlFlow<()> {
    if failures.len() >= budget.failures_max.max(1) {
        ControlFlow::Break(())
    } else {
        ControlFlow::Continue(())
    }
}
