//! The ring and the events against a model that keeps everything.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use syncline_recorder::{Report, ring};

use crate::support::{Kept, MemoryStrategy, config, found, payload};

#[derive(Clone, Debug)]
enum Op {
    Push(usize),
    PushMany(u64),
    TooLong(usize),
    Fire(u32),
    Stop,
    Step,
    Work,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0..=64usize).prop_map(Op::Push),
        3 => (1..30u64).prop_map(Op::PushMany),
        1 => (65..=70usize).prop_map(Op::TooLong),
        2 => (0..40u32).prop_map(Op::Fire),
        1 => Just(Op::Stop),
        6 => Just(Op::Step),
        4 => Just(Op::Work),
    ]
}

/// Records that were pushed and not lost, in order: sequence number and payload.
#[derive(Default)]
struct Model {
    records: Vec<(u64, Vec<u8>)>,
    /// Position of the record and the records after it.
    faults: Vec<(usize, u32)>,
    stops: Vec<usize>,
    pending_fault: Option<u32>,
    pending_stop: bool,
    lost: u64,
}

impl Model {
    fn pushed(&mut self, result: Result<u64, syncline_recorder::Lost>, bytes: Vec<u8>) {
        let Ok(sequence) = result else {
            self.lost += 1;
            return;
        };
        let position = self.records.len();
        self.faults.extend(self.pending_fault.take().map(|post| (position, post)));
        if std::mem::take(&mut self.pending_stop) {
            self.stops.push(position);
        }
        self.records.push((sequence, bytes));
    }

    /// The records of the event of this fault.
    fn event(&self, (position, post): (usize, u32), pre: u32) -> &[(u64, Vec<u8>)] {
        let from = position.saturating_sub(pre as usize);
        let end = (position + 1 + post as usize).min(self.records.len());
        let stop = self.stops.iter().find(|stop| **stop > position);
        &self.records[from..stop.map_or(end, |stop| end.min(*stop))]
    }
}

fn run(ops: &[Op], pre: u32, slack: u32, fail_at: Option<u64>) {
    let config = config(pre, 25, slack);
    let (mut producer, trigger, mut machine) = ring(&config).unwrap();
    let strategy = MemoryStrategy { fail_at, ..MemoryStrategy::default() };
    let (mut kept, mut model) = (Kept::default(), Model::default());
    for op in ops {
        let mut push = |len: usize| {
            let bytes = payload(producer.next_sequence(), len);
            model.pushed(producer.push(producer.next_sequence() * 10, &bytes), bytes);
        };
        match op {
            Op::Push(len) => push(*len),
            Op::PushMany(count) => (0..*count).for_each(|n| push(n as usize)),
            Op::TooLong(len) => push(*len),
            Op::Fire(post) => {
                trigger.fire_for(*post);
                let post = (*post).min(25);
                model.pending_fault = Some(model.pending_fault.map_or(post, |p| p.max(post)));
            }
            Op::Stop => {
                trigger.stop();
                model.pending_stop = true;
            }
            Op::Step => drop(machine.step(&strategy, &mut kept)),
            Op::Work => drop(kept.work(&mut machine, &strategy)),
        }
        assert!(kept.jobs.len() <= 2 * config.events_max as usize, "jobs are bounded");
    }
    assert_eq!((producer.lost(), machine.lost()), (model.lost, model.lost));
    kept.end(&mut machine, &strategy);
    if let Some(post) = model.pending_fault.take() {
        model.faults.push((model.records.len(), post));
    }
    judge(&model, &kept, &strategy, pre);
}

fn judge(model: &Model, kept: &Kept, strategy: &MemoryStrategy, pre: u32) {
    let files = strategy.files.lock();
    let next = model.records.last().map_or(0, |last| last.0 + 1);
    let (mut answered, mut failures) = (0, 0);
    for report in &kept.reports {
        let (event, trigger_sequence) = match report {
            Report::Started { event, trigger_sequence } => (event, trigger_sequence),
            Report::Refused { .. } => {
                answered += 1;
                continue;
            }
            Report::Failed { .. } => {
                failures += 1;
                continue;
            }
            _ => continue,
        };
        answered += 1;
        let sequence_at = |at: usize| model.records.get(at).map_or(next, |record| record.0);
        let fault = model.faults.iter().find(|fault| sequence_at(fault.0) == *trigger_sequence);
        let expected = model.event(*fault.expect("faults have records"), pre);
        let whole =
            Report::Finished { event: *event, records: expected.len() as u64, durable: true };
        let ended = kept.reports.contains(&whole);
        assert!(ended || strategy.fail_at.is_some(), "event {event} is not durable");
        let Some(found) = found(&files[event]) else {
            assert!(!ended, "the file of event {event} is empty");
            continue;
        };
        if ended {
            assert_eq!(found.records, expected, "event {event}");
            assert_eq!(found.summary.ended, Some(expected.len() as u64));
        } else {
            assert_eq!(found.records, expected[..found.records.len()], "event {event}");
            assert_eq!(found.summary.ended, None);
        }
        let missing: u64 = expected.windows(2).map(|pair| pair[1].0 - pair[0].0 - 1).sum();
        assert!(found.summary.missing == missing || !ended, "gaps are reported: {:?}", found.gaps);
        assert_eq!(found.summary.damaged, 0);
    }
    assert_eq!(answered, model.faults.len(), "each fault is answered");
    assert!(failures == 0 || strategy.fail_at.is_some());
}

fn cases() -> ProptestConfig {
    ProptestConfig {
        cases: 400,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn events_hold_what_the_model_says(
        ops in proptest::collection::vec(op(), 0..250), pre in 0..50u32, slack in 1..40u32,
    ) {
        run(&ops, pre, slack, None);
    }

    #[test]
    fn a_failed_call_costs_its_event_only(
        ops in proptest::collection::vec(op(), 0..250), pre in 0..50u32, fail_at in 1..30u64,
    ) {
        run(&ops, pre, 40, Some(fail_at));
    }
}

#[test]
fn a_full_ring_loses_the_newest_and_says_so() {
    let (mut producer, trigger, mut machine) = ring(&config(4, 10, 2)).unwrap();
    let (strategy, mut kept) = (MemoryStrategy::default(), Kept::default());
    for sequence in 0..6 {
        assert_eq!(producer.push(sequence, &payload(sequence, 64)), Ok(sequence));
    }
    trigger.fire();
    assert_eq!(producer.push(6, b"lost").unwrap_err().sequence, 6);
    assert_eq!((producer.lost(), trigger.slack_used()), (1, 0));
    machine.step(&strategy, &mut kept);
    assert_eq!(trigger.slack_used(), 2);
    // The fault waits for a record that is kept.
    assert_eq!(producer.push(7, b"kept"), Ok(7));
    kept.end(&mut machine, &strategy);
    let found = found(&strategy.files.lock()[&1]).unwrap();
    let sequences: Vec<u64> = found.records.iter().map(|record| record.0).collect();
    assert_eq!(sequences, [2, 3, 4, 5, 7]);
    assert_eq!(found.gaps, [(6, 1)]);
    assert_eq!((found.summary.trigger_sequence, found.summary.ended), (7, Some(5)));
}

#[test]
fn events_beyond_the_limit_are_refused_and_memory_stays() {
    let config = config(2, 20, 20);
    let (mut producer, trigger, mut machine) = ring(&config).unwrap();
    let (strategy, mut kept) = (MemoryStrategy::default(), Kept::default());
    for n in 0..5 {
        trigger.fire();
        producer.push(n, b"fault").unwrap();
    }
    assert_eq!(machine.step(&strategy, &mut kept).events, 3);
    let refused = kept.reports.iter().filter(|r| matches!(r, Report::Refused { .. })).count();
    assert_eq!(refused, 2);
    kept.end(&mut machine, &strategy);
    assert_eq!(strategy.files.lock().len(), 3);
}

#[test]
fn what_cannot_be_built_is_refused() {
    let refuse = |change: fn(&mut syncline_recorder::Config)| {
        let mut config = config(1, 1, 1);
        change(&mut config);
        let error = ring(&config).err().expect("it is refused").to_string();
        assert!(error.contains("; "), "no next step: {error}");
    };
    refuse(|config| config.slot_align_bytes = 96);
    refuse(|config| config.payload_bytes_max = 7);
    refuse(|config| config.payload_bytes_max = 17 << 20);
    refuse(|config| config.slack_records = 0);
    refuse(|config| config.events_max = 2000);
    refuse(|config| (config.pre_records, config.payload_bytes_max) = (u32::MAX, 1 << 20));
}
