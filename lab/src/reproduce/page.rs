//! The page of reproduced rows: for each the paper's values beside ours as bars, the figures, and
//! what reached the device in the runs that the paper plots.

use std::collections::BTreeMap;

use crate::report::{About, Chart, Layout, Page};

use crate::reproduce::catalog::Catalog;
use crate::reproduce::document::{Compared, Document, INTERRUPTED, Reproduced};

/// One self-contained file.
pub fn page(document: &Document, catalog: &Catalog, about: &About) -> String {
    let mut page = Page::new("The papers' tables and figures, and ours");
    if document.interrupted {
        page.paragraph(INTERRUPTED);
    }
    page.paragraph(if document.full {
        "The papers' lengths. Rows in virtual time give the same figures on every machine."
    } else {
        "Short form. Rows in virtual time give the same figures on every machine."
    });
    for paper in &catalog.papers {
        let rows: Vec<&Reproduced> =
            document.rows.iter().filter(|row| row.paper == paper.id).collect();
        if rows.is_empty() {
            continue;
        }
        page.heading(&paper.title);
        for row in rows {
            section(&mut page, row);
        }
    }
    page.finish(about)
}

fn section(page: &mut Page, row: &Reproduced) {
    page.heading(&format!("{}: {}", row.place, row.what));
    page.paragraph(&row.command);
    let note = row.note();
    if !note.is_empty() {
        page.paragraph(&note);
    }
    let mut units: BTreeMap<&str, Vec<&Compared>> = BTreeMap::new();
    for compared in row.figures.iter().filter(|compared| compared.ours.is_some()) {
        units.entry(&compared.unit).or_default().push(compared);
    }
    for (unit, figures) in units {
        page.bars(&chart(unit, &figures));
    }
    let head = ["figure", "unit", "paper", "here"].map(str::to_owned);
    let lines: Vec<Vec<String>> = row.figures.iter().map(line).collect();
    if !lines.is_empty() {
        page.table(&head, &lines, 2);
    }
    for (name, measured) in &row.plots {
        let title = format!("write requests by address, {name}");
        page.sequence(&title, &measured.events, measured.events_lost);
    }
}

fn line(compared: &Compared) -> Vec<String> {
    let texts = [compared.paper_text(), compared.ours_text()];
    [vec![compared.name.clone(), compared.unit.clone()], texts.to_vec()].concat()
}

/// The paper's least and largest value, and ours, of figures of one unit.
fn chart(unit: &str, figures: &[&Compared]) -> Chart {
    let bounds = |compared: &&Compared| compared.paper.bounds();
    let ranges = figures.iter().filter_map(bounds).any(|[low, high]| low != high);
    let mut series = vec!["paper".to_owned()];
    if ranges {
        series = vec!["paper, from".to_owned(), "paper, to".to_owned()];
    }
    series.push("here".to_owned());
    let values = figures.iter().map(|compared| {
        let [low, high] = compared.paper.bounds().unwrap_or([f64::NAN, f64::NAN]);
        let paper = if ranges { vec![low, high] } else { vec![low] };
        [paper, vec![compared.ours.unwrap_or(f64::NAN)]].concat()
    });
    Chart {
        title: if unit.is_empty() { "ratio".to_owned() } else { unit.to_owned() },
        unit: unit.to_owned(),
        layout: Layout::Rows,
        groups: figures.iter().map(|compared| compared.name.clone()).collect(),
        series,
        values: values.collect(),
    }
}
