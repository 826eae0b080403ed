//! Stored figures of the papers' lengths, beside the papers and beside those of the short form.
//!
//! Each difference of more than a fifth, or in sign, has its cause in the catalogue; a cause that
//! no difference needs is one that has gone stale.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use syncline_lab::reproduce::{Catalog, Figure, Reason, Row, differs, reason};

#[derive(Deserialize)]
struct Results {
    records: Vec<Record>,
    commit: String,
}

#[derive(Deserialize)]
struct Record {
    paper: String,
    label: String,
    ours: Option<f64>,
}

/// Stored figures by paper and label.
type Figures = BTreeMap<(String, String), Option<f64>>;

fn stored(id: &str) -> (Figures, String) {
    let path = format!("{}/../docs/figures/{id}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect(&path);
    let results: Results = serde_json::from_str(&text).expect(&path);
    let figures = results.records.into_iter();
    (figures.map(|r| ((r.paper, r.label), r.ours)).collect(), results.commit)
}

/// Notes figures of a row that need a reason and have none, and reasons that no figure needs.
fn check(of: &str, reasons: &[Reason], far: &BTreeSet<&str>, wrong: &mut Vec<String>) {
    let mut used = BTreeSet::new();
    for figure in far {
        match reason(reasons, figure) {
            "" => wrong.push(format!("{of}: {figure} differs by more than a fifth without cause")),
            text => drop(used.insert(text)),
        }
    }
    for stale in reasons.iter().filter(|reason| !used.contains(reason.text.as_str())) {
        wrong.push(format!("{of}: no figure needs the cause `{}`", stale.text));
    }
}

/// Checks every row: `is_far` decides from the stored full and short value.
fn every_row(
    reasons: impl Fn(&Row) -> &[Reason],
    is_far: impl Fn(&Figure, Option<f64>, Option<f64>) -> bool,
) -> Vec<String> {
    let (full, short) = (stored("papers").0, stored("papers-short").0);
    let catalog = Catalog::shipped().unwrap();
    let mut wrong = Vec::new();
    for (paper, row) in catalog.find(&[]).unwrap() {
        let of = format!("{}/{}", paper.id, row.id);
        let far = row.figures.iter().filter(|figure| {
            let key = (paper.id.clone(), format!("{}: {}", row.id, figure.name));
            match (full.get(&key), short.get(&key)) {
                (Some(full), Some(short)) => is_far(figure, *full, *short),
                _ => panic!("{key:?} is not stored; run cargo xtask figures papers papers-short"),
            }
        });
        check(&of, reasons(row), &far.map(|figure| figure.name.as_str()).collect(), &mut wrong);
    }
    wrong
}

#[test]
fn what_differs_from_the_paper_has_its_cause() {
    let wrong = every_row(
        |row| &row.causes,
        |figure, full, _| full.is_some_and(|full| figure.paper.is_far_from(full)),
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_the_length_changes_has_its_cause() {
    let wrong = every_row(
        |row| &row.lengths,
        |_, full, short| full.zip(short).is_some_and(|(full, short)| differs(short, full)),
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn stored_figures_are_of_one_commit_without_changes() {
    let (full, short) = (stored("papers").1, stored("papers-short").1);
    assert_eq!(full, short);
    assert!(!full.is_empty() && !full.ends_with("-dirty"), "{full}");
}

#[test]
fn a_missing_and_a_stale_cause_are_found() {
    let reasons = |of: &str| [Reason { of: of.to_owned(), text: "c".to_owned() }];
    let found = |of: &str, far: &[&str]| {
        let mut wrong = Vec::new();
        check("row", &reasons(of), &far.iter().copied().collect(), &mut wrong);
        wrong
    };
    assert_eq!(found("a", &["a, b"]), [""; 0]);
    assert_eq!(found("a", &["a", "x"]), ["row: x differs by more than a fifth without cause"]);
    assert_eq!(found("a", &[]), ["row: no figure needs the cause `c`"]);
}
