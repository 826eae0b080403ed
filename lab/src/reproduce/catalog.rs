//! Rows: what a table or figure of a paper shows, and the runs that yield ours.
//!
//! ```toml
//! id = "eager-sync"                      title = "..."
//! [[row]]                                one table or figure
//! id = "table-5.4"   place = "Table 5.4, section 5.2"   what = "..."   differs = "..."
//! quantity = { "1/s" = "Transactions a second" }
//! run = [{ name = "ordered", bench = { workload = "sqlite/insert", sync = "ordered" } }]
//! figure = [{ name = "insert", unit = "1/s", paper = 45, run = "ordered", metric = "..." }]
//! ```
//!
//! A value of a paper is a number, or two where it gives a range; a figure without one has ours
//! only. A row with `why` cannot be run here and says why. `cause` tells why figures differ from
//! the paper by more than a fifth, `length` why the short form differs from the full one by that.
//! Tested here and in `lab/tests/reproduce`.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::error::{LabError, Result};
use crate::reproduce::planned::{Form, Planned};

/// Rows of each paper, in the order of the papers.
const PAPERS: [&str; 5] = [
    include_str!("../../../baselines/reproduce/eager-sync.toml"),
    include_str!("../../../baselines/reproduce/coarse-mtime.toml"),
    include_str!("../../../baselines/reproduce/write-latency.toml"),
    include_str!("../../../baselines/reproduce/hot-zones.toml"),
    include_str!("../../../baselines/reproduce/informed-storage.toml"),
];

/// Every paper.
#[derive(Clone, Debug)]
pub struct Catalog {
    /// In their order.
    pub papers: Vec<Paper>,
}

/// One paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// First part of the names of its rows.
    pub id: String,
    /// Title, authors, year.
    pub title: String,
    /// Its tables and figures, in its order.
    #[serde(rename = "row")]
    pub rows: Vec<Row>,
}

/// Kind of time that a row needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Time {
    /// Virtual time and counts: the same figures everywhere.
    #[default]
    Virtual,
    /// Real time of this machine.
    Real,
    /// None: it is not run.
    None,
}

/// One table or figure of a paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Second part of its name.
    pub id: String,
    /// Table or figure, and section.
    pub place: String,
    /// Subject.
    pub what: String,
    /// Quantity of its figures, by unit.
    #[serde(default)]
    pub quantity: BTreeMap<String, String>,
    /// Kind of time.
    #[serde(default)]
    pub time: Time,
    /// Difference between the paper's setting and ours.
    #[serde(default)]
    pub differs: String,
    /// Reason why it is not run, for [`Time::None`].
    #[serde(default)]
    pub why: String,
    /// Causes of differences from the paper of more than a fifth.
    #[serde(default, rename = "cause")]
    pub causes: Vec<Reason>,
    /// Causes of differences of the short form from the full one of more than a fifth.
    #[serde(default, rename = "length")]
    pub lengths: Vec<Reason>,
    /// Command of a reader who wants to vary it; empty: `syncline-lab reproduce` alone.
    #[serde(default)]
    pub command: String,
    /// The runs.
    #[serde(default, rename = "run")]
    pub runs: Vec<Planned>,
    /// The figures.
    #[serde(default, rename = "figure")]
    pub figures: Vec<Figure>,
}

/// A cause, and the figures that it is of.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reason {
    /// Part of the names of the figures; empty: all of the row.
    #[serde(default)]
    pub of: String,
    /// The cause.
    pub text: String,
}

/// The first of `reasons` that is of `figure`; empty without one.
pub fn reason<'r>(reasons: &'r [Reason], figure: &str) -> &'r str {
    reasons.iter().find(|reason| figure.contains(&reason.of)).map_or("", |reason| &reason.text)
}

/// Share by which two values may differ without a cause.
const FIFTH: f64 = 0.2;

/// True if the values differ in sign, or by more than a fifth of `of`.
pub fn differs(value: f64, of: f64) -> bool {
    // What rounds to zero is zero.
    let zero = |value: f64| value.abs() < 0.005;
    match (zero(value), zero(of)) {
        (true, true) => false,
        (false, false) if value.signum() == of.signum() => (value - of).abs() > FIFTH * of.abs(),
        _ => true,
    }
}

/// A value of a paper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Published {
    /// The paper gives none.
    #[default]
    None,
    /// One number.
    One(f64),
    /// From and to.
    Range([f64; 2]),
}

impl Published {
    /// The least and the largest.
    pub fn bounds(&self) -> Option<[f64; 2]> {
        match *self {
            Published::None => None,
            Published::One(value) => Some([value, value]),
            Published::Range(bounds) => Some(bounds),
        }
    }

    /// True if `ours` lies outside of the paper's value or range by more than a fifth.
    pub fn is_far_from(&self, ours: f64) -> bool {
        let Some([low, high]) = self.bounds() else { return false };
        let outside = ours < low || ours > high;
        outside && differs(ours, if ours < low { low } else { high })
    }
}

/// One figure of a row.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Name within the row.
    pub name: String,
    /// Unit; may be empty.
    #[serde(default)]
    pub unit: String,
    /// Quantity, if it is not the row's for its unit.
    pub quantity: Option<String>,
    /// The paper's.
    #[serde(default)]
    pub paper: Published,
    /// Run that it is of.
    pub run: String,
    /// Metric of that run.
    pub metric: String,
    /// Runs whose same metric is added to it.
    #[serde(default)]
    pub plus: Vec<String>,
    /// Run whose same metric is taken off it.
    pub less: Option<String>,
    /// Run whose same metric it is divided by.
    pub over: Option<String>,
    /// Runs by whose greatest same metric it is divided.
    #[serde(default)]
    pub over_greatest: Vec<String>,
    /// Runs by whose least same metric it is divided.
    #[serde(default)]
    pub over_least: Vec<String>,
    /// Metric of the same run that it is divided by.
    pub per: Option<String>,
    /// Factor from the metric's unit to the one shown.
    #[serde(default = "one")]
    pub scale: f64,
    /// Form of the quotient or number.
    #[serde(default, rename = "as")]
    pub form: Form,
}

impl Row {
    /// The quantity of one of its figures.
    pub(crate) fn quantity_of<'r>(&'r self, figure: &'r Figure) -> Option<&'r String> {
        figure.quantity.as_ref().or_else(|| self.quantity.get(&figure.unit))
    }
}

fn one() -> f64 {
    1.0
}

impl Catalog {
    /// The rows that ship.
    pub fn shipped() -> Result<Catalog> {
        let papers = PAPERS.iter().map(|text| paper(text)).collect::<Result<Vec<_>>>()?;
        Ok(Catalog { papers })
    }

    /// Rows that `names` mean, in the catalogue's order: a paper, or `PAPER/ROW`; all without any.
    pub fn find(&self, names: &[String]) -> Result<Vec<(&Paper, &Row)>> {
        let all = || self.papers.iter().flat_map(|p| p.rows.iter().map(move |row| (p, row)));
        let is = |name: &str, paper: &Paper, row: &Row| match name.split_once('/') {
            None => name == paper.id,
            Some((of, id)) => of == paper.id && id == row.id,
        };
        for name in names {
            if !all().any(|(paper, row)| is(name, paper, row)) {
                return Err(self.unknown(name));
            }
        }
        let wanted = |(paper, row): &(&Paper, &Row)| {
            names.is_empty() || names.iter().any(|name| is(name, paper, row))
        };
        Ok(all().filter(wanted).collect())
    }

    fn unknown(&self, name: &str) -> LabError {
        let paper = name.split_once('/').map_or(name, |(paper, _)| paper);
        let of_row = |paper: &Paper| paper.rows.iter().any(|row| row.id == name);
        let with: Vec<&Paper> = self.papers.iter().filter(|paper| of_row(paper)).collect();
        if let Some(paper) = with.first() {
            let text = format!("no table or figure is called `{name}`; give `{}/{name}`", paper.id);
            return LabError::Usage(text);
        }
        let known: Vec<String> = match self.papers.iter().find(|known| known.id == paper) {
            Some(known) => known.rows.iter().map(|row| format!("{paper}/{}", row.id)).collect(),
            None => self.papers.iter().map(|paper| paper.id.clone()).collect(),
        };
        LabError::Usage(format!(
            "no table or figure is called `{name}`; choose of {}; --list has all of them",
            known.join(", ")
        ))
    }
}

fn paper(text: &str) -> Result<Paper> {
    let paper: Paper = toml::from_str(text)
        .map_err(|err| LabError::Usage(format!("the catalogue is damaged: {err}")))?;
    for row in &paper.rows {
        check(&paper, row)?;
    }
    Ok(paper)
}

/// A row that is whole: its runs are of one kind each, its figures name them.
fn check(paper: &Paper, row: &Row) -> Result<()> {
    let wrong = |what: String| {
        Err(LabError::Usage(format!("{}/{}: {what}; correct the catalogue", paper.id, row.id)))
    };
    if (row.time == Time::None) == row.why.is_empty() {
        return wrong("a reason belongs to a row that is not run".to_owned());
    }
    if row.time != Time::None && row.figures.is_empty() {
        return wrong("it has no figure".to_owned());
    }
    for run in &row.runs {
        let real = run.command.is_some();
        if run.kinds() != 1 || real != (row.time == Time::Real) {
            return wrong(format!("run `{}` is not of one kind that fits", run.name));
        }
    }
    for figure in &row.figures {
        let others = figure.over.iter().chain(&figure.over_greatest).chain(&figure.over_least);
        let names = others.chain(&figure.plus).chain(&figure.less).chain([&figure.run]);
        for name in names {
            if row.runs.iter().filter(|run| run.name == *name).count() != 1 {
                return wrong(format!("figure `{}` names no run `{name}`", figure.name));
            }
        }
        if row.quantity_of(figure).is_none() {
            return wrong(format!("figure `{}` is of no quantity", figure.name));
        }
        // They stand in one table, on one axis.
        let table = |of: &Figure| (row.quantity_of(of).cloned(), of.unit.clone());
        let divided = |of: &Figure| {
            of.over.is_some() || !of.over_greatest.is_empty() || !of.over_least.is_empty()
        };
        let kind = |of: &Figure| (of.form, divided(of), of.less.is_some());
        let mixed = |of: &&Figure| table(of) == table(figure) && kind(of) != kind(figure);
        if let Some(other) = row.figures.iter().find(mixed) {
            let text = format!("`{}` and `{}` are of one quantity", figure.name, other.name);
            return wrong(text + " and are not measured alike");
        }
        if row.figures.iter().filter(|other| other.name == figure.name).count() != 1 {
            return wrong(format!("two figures are called `{}`", figure.name));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(text: &str) -> Result<Paper> {
        paper(&format!("id = 'p'\ntitle = 't'\n[[row]]\nid = 'r'\nplace = ''\nwhat = ''\n{text}"))
    }

    #[test]
    fn rows_that_contradict_themselves_are_refused() {
        let run =
            "run = [{ name = 'a', check = { device = 'd', figure = 'random-read-4k-iops' } }]";
        let figure = "figure = [{ name = 'f', run = 'a', metric = 'value', paper = [1, 2] }]";
        let of = "quantity = { '' = 'q' }";
        let mixed = "figure = [{ name = 'f', run = 'a', metric = 'value' }, \
                     { name = 'g', run = 'a', over = 'a', metric = 'value' }]";
        let good = row(&format!("{of}\n{run}\n{figure}")).unwrap();
        assert_eq!(good.rows[0].figures[0].paper.bounds(), Some([1.0, 2.0]));
        for (bad, why) in [
            (run.to_owned(), "no figure"),
            (format!("{run}\n{figure}"), "no quantity"),
            (figure.to_owned(), "names no run"),
            (format!("why = 'x'\n{run}\n{figure}"), "a reason"),
            (format!("time = 'real'\n{run}\n{figure}"), "one kind"),
            (format!("run = [{{ name = 'a' }}]\n{figure}"), "one kind"),
            (format!("{of}\n{run}\n{mixed}"), "not measured alike"),
            (format!("{run}\nfigures = 1"), "damaged"),
        ] {
            let err = row(&bad).expect_err(&bad).to_string();
            assert!(err.contains(why), "{bad}: {err}");
        }
    }

    #[test]
    fn a_fifth_more_or_another_sign_is_far() {
        let far = [(1.3, 1.0), (0.7, 1.0), (-0.1, 1.0), (0.0, 1.0), (1.0, 0.0), (25.5, -25.0)];
        for (value, of) in far {
            assert!(differs(value, of), "{value} {of}");
        }
        for (value, of) in [(1.15, 1.0), (-1.15, -1.0), (0.001, 0.0), (0.001, -0.001)] {
            assert!(!differs(value, of), "{value} {of}");
        }
        let range = Published::Range([10.0, 20.0]);
        assert!(!range.is_far_from(8.5) && !range.is_far_from(15.0) && range.is_far_from(7.0));
        assert!(range.is_far_from(24.5) && !Published::None.is_far_from(1.0));
    }

    #[test]
    fn the_first_reason_whose_words_a_figure_has_is_its_cause() {
        let reason_of = |of: &str, text: &str| Reason { of: of.to_owned(), text: text.to_owned() };
        let reasons = [reason_of("read", "a"), reason_of("", "b")];
        assert_eq!(["x, read", "x, written"].map(|name| reason(&reasons, name)), ["a", "b"]);
        assert_eq!(reason(&reasons[..1], "written"), "");
    }

    #[test]
    fn papers_and_rows_are_found_by_name() {
        let catalog = Catalog::shipped().unwrap();
        let all = catalog.find(&[]).unwrap();
        let one = catalog.find(&["eager-sync/table-5.4".to_owned()]).unwrap();
        assert_eq!(one.len(), 1);
        let some = catalog.find(&["hot-zones".to_owned(), "eager-sync".to_owned()]).unwrap();
        assert!(some.len() < all.len() && some[0].0.id == "eager-sync");
        let err = catalog.find(&["eager-sync/table-9".to_owned()]).unwrap_err().to_string();
        assert!(err.contains("eager-sync/table-5.4"), "{err}");
        let err = catalog.find(&["000".to_owned()]).unwrap_err().to_string();
        assert!(err.contains("coarse-mtime, write-latency"), "{err}");
    }
}
