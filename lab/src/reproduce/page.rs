//! The page of reproduced rows: for each the paper's values beside ours as bars, the figures, and
//! what reached the device in the runs that the paper plots.

use std::collections::BTreeMap;

use crate::report::{About, Chart, Layout, Page};

use crate::reproduce::catalog::Catalog;
use crate::reproduce::document::{Compared, Document, INTERRUPTED, Reproduced, SHORT};

/// One self-contained file.
pub fn page(document: &Document, catalog: &Catalog, about: &About) -> String {
    let mut page = Page::new("The papers' tables and figures, and ours");
    if document.interrupted {
        page.paragraph(INTERRUPTED);
    }
    page.paragraph(if document.full {
        "The papers' lengths. Rows in virtual time give the same figures on every machine."
    } else {
        SHORT
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

/// Our value, and the paper's least and largest one where it has any, of figures of one unit. A
/// series has the same place, and so the same colour, in every chart.
fn chart(unit: &str, figures: &[&Compared]) -> Chart {
    let published = || figures.iter().filter_map(|compared| compared.paper.bounds());
    let series: &[&str] = match published().any(|[low, high]| low != high) {
        true => &["here", "paper, from", "paper, to"],
        false if published().next().is_some() => &["here", "paper"],
        false => &["here"],
    };
    let values = figures.iter().map(|compared| {
        let [low, high] = compared.paper.bounds().unwrap_or([f64::NAN, f64::NAN]);
        let mut values = vec![compared.ours.unwrap_or(f64::NAN), low, high];
        values.truncate(series.len());
        values
    });
    Chart {
        title: if unit.is_empty() { "ratio".to_owned() } else { unit.to_owned() },
        unit: unit.to_owned(),
        layout: Layout::Rows,
        groups: figures.iter().map(|compared| compared.name.clone()).collect(),
        series: series.iter().map(|name| (*name).to_owned()).collect(),
        values: values.collect(),
        ..Chart::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::catalog::Published;

    #[test]
    fn a_series_has_the_same_place_in_every_chart() {
        let figure = |paper| Compared {
            name: "f".to_owned(),
            unit: "s".to_owned(),
            paper,
            ours: Some(1.0),
            range: None,
            cause: String::new(),
            length: String::new(),
        };
        let of = |paper| chart("s", &[&figure(paper)]);
        assert_eq!(of(Published::None).series, ["here"], "no paper without a value");
        assert_eq!(of(Published::One(2.0)).series, ["here", "paper"]);
        let both = of(Published::Range([2.0, 3.0]));
        assert_eq!(both.series, ["here", "paper, from", "paper, to"]);
        assert_eq!(both.values, [[1.0, 2.0, 3.0]]);
    }
}
