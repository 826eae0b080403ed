//! The cost model against the stack: N syncs with and without temporal locality, every block and
//! request up to the unmount, held to the equations within 10 %. `--nocapture` prints the paper's
//! equations, the extended ones and what was measured.
//!
//! M, M', D and D' are one block each, dirty before each sync. All lies within one commit interval.

use syncline_lab::bench::cost_model::{
    Cost, Dirty, InPlace, Locality, Log, eager, measure, ordered, paper,
};

const SYNCS: u64 = 256;
const WITHIN_PERCENT: f64 = 10.0;
/// Inodes in a block of the inode table.
const INODES_PER_BLOCK: u64 = 16;

fn off_percent(measured: u64, model: u64) -> f64 {
    (measured as f64 / model as f64 - 1.0) * 100.0
}

fn figures(name: &str, cost: &Cost) -> String {
    let Cost { blocks, requests, flushes } = cost;
    format!(r#""{name}":{{"blocks":{blocks},"requests":{requests},"flushes":{flushes}}}"#)
}

fn check(test: &str, locality: Locality) {
    let Some(image) = crate::common::image(test) else { return };
    let dirty = Dirty { metadata: 1, other_metadata: 1, data: 1, other_data: 1 };
    let log = Log::default();
    let place = match locality {
        Locality::Same => InPlace { metadata: 2, metadata_requests: 2, data: 1, data_requests: 1 },
        Locality::Distinct => InPlace {
            metadata: SYNCS / INODES_PER_BLOCK + 1,
            metadata_requests: 2,
            data: SYNCS,
            data_requests: SYNCS,
        },
    };
    let mut wrong = Vec::new();
    for sync in ["ordered", "eager"] {
        let measured = measure(image.snapshot(), sync, locality, SYNCS).unwrap();
        let (model, blocks, requests) = if sync == "ordered" {
            let model = ordered(SYNCS, &dirty, &log, &place);
            (model, paper::ordered_blocks(SYNCS, &dirty), paper::ordered_requests(SYNCS))
        } else {
            let blocks = paper::eager_blocks(SYNCS, &dirty, locality);
            let model = eager(SYNCS, &dirty, &log, &place);
            (model, blocks, paper::eager_requests(SYNCS, locality))
        };
        println!(
            r#"{{"sync":"{sync}","place":"{locality:?}",{},{},{}}}"#,
            format_args!(r#""paper":{{"blocks":{blocks},"requests":{requests}}}"#),
            figures("model", &model),
            figures("measured", &measured)
        );
        for (name, measured, model) in [
            ("blocks", measured.blocks, model.blocks),
            ("requests", measured.requests, model.requests),
            ("flushes", measured.flushes, model.flushes),
        ] {
            let off = off_percent(measured, model);
            if off.abs() > WITHIN_PERCENT {
                wrong.push(format!("{sync} {name}: {measured}, model {model} ({off:+.1} %)"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn syncs_of_the_same_blocks() {
    check("syncs_of_the_same_blocks", Locality::Same);
}

#[test]
fn syncs_of_other_files() {
    check("syncs_of_other_files", Locality::Distinct);
}
