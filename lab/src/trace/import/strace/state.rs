//! State of the traced processes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::trace::model::NameId;

/// Threads and processes that are followed; beyond, the oldest knowledge is dropped.
const PROCESSES_MAX: usize = 1 << 16;

/// An open file, shared by the descriptors that were duplicated from it.
pub(super) struct Opened {
    pub(super) file: NameId,
    pub(super) offset: Cell<u64>,
    pub(super) append: bool,
    pub(super) sync: bool,
}

/// A process; its threads share it.
#[derive(Default)]
pub(super) struct Process {
    pub(super) id: u32,
    pub(super) name: Cell<NameId>,
    pub(super) dir: RefCell<String>,
    pub(super) files: RefCell<FxHashMap<i64, Rc<Opened>>>,
}

/// State of a file before the trace.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// Its size is known, or does not matter since the trace made it.
    Settled(u64),
    /// It was opened, nothing more.
    Seen,
    /// It is not there.
    Missing,
}

#[derive(Default)]
pub(super) struct State {
    threads: FxHashMap<u32, Rc<Process>>,
    pub(super) known: FxHashMap<NameId, Known>,
}

impl State {
    pub(super) fn process(&mut self, thread: u32) -> Rc<Process> {
        if self.threads.len() > PROCESSES_MAX {
            self.threads.clear();
        }
        let new = || Rc::new(Process { id: thread, ..Process::default() });
        Rc::clone(self.threads.entry(thread).or_insert_with(new))
    }

    /// A thread or process that `parent` made.
    pub(super) fn cloned(&mut self, parent: &Rc<Process>, child: u32, shares: bool) {
        let process = if shares {
            Rc::clone(parent)
        } else {
            Rc::new(Process {
                id: child,
                name: parent.name.clone(),
                dir: parent.dir.clone(),
                files: parent.files.clone(),
            })
        };
        self.threads.insert(child, process);
    }

    pub(super) fn exit(&mut self, thread: u32) {
        self.threads.remove(&thread);
    }

    /// The size of a file, as far as it is known.
    pub(super) fn size(&self, file: NameId) -> Option<u64> {
        match self.known.get(&file) {
            Some(Known::Settled(size)) => Some(*size),
            _ => None,
        }
    }
}
