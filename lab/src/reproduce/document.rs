//! Reproduced rows as text and as a JSON document.
//!
//! `{"schema": "syncline.reproduce/1", "form", "rows": [...], "figures": [...]}`: rows and figures
//! are two flat lists, joined by the row's name, so that a table program reads them as they are.

use crate::report::{aligned, figure};
use serde::Serialize;

use crate::reproduce::catalog::{Figure, Paper, Published, Row, Time, reason};
use crate::reproduce::measured::Measured;

/// Schema name of the document.
pub const SCHEMA: &str = "syncline.reproduce/1";

/// How our value is to the paper's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Agrees,
    Higher,
    Lower,
}

/// One figure, the paper's and ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// Name within the row.
    pub name: String,
    /// Quantity.
    pub quantity: String,
    /// Unit; may be empty.
    pub unit: String,
    /// The paper's.
    pub paper: Published,
    /// Ours; none if it was not run in this form.
    pub ours: Option<f64>,
    /// Least and greatest of ours over what published figures leave open of the device; none if
    /// they leave nothing open, or that was not asked for.
    pub range: Option<[f64; 2]>,
    /// Cause of a difference from the paper of more than a fifth; empty if there is none.
    pub cause: String,
    /// Cause of a difference of the short form from the full one; empty if there is none.
    pub length: String,
}

impl Compared {
    /// A figure of `row` with our value, and those at the ends of what is open of the device.
    pub fn new(row: &Row, figure: &Figure, ours: Option<f64>, ends: Vec<f64>) -> Compared {
        let Figure { name, unit, paper, .. } = figure;
        let quantity = row.quantity_of(figure).cloned().unwrap_or_default();
        let is_far = ours.is_some_and(|ours| paper.is_far_from(ours));
        let cause = if is_far { reason(&row.causes, name) } else { "" }.to_owned();
        let length = reason(&row.lengths, name).to_owned();
        let all = || ends.iter().copied().chain(ours);
        let range = [all().fold(f64::MAX, f64::min), all().fold(f64::MIN, f64::max)];
        let range = (!ends.is_empty()).then_some(range);
        let (name, unit) = (name.clone(), unit.clone());
        Compared { name, quantity, unit, paper: *paper, ours, range, cause, length }
    }

    /// How ours is to the paper's; none where one of them is missing.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        let ([low, _], ours) = self.paper.bounds().zip(self.ours)?;
        Some(match ours {
            _ if !self.paper.is_far_from(ours) => Verdict::Agrees,
            _ if ours < low => Verdict::Lower,
            _ => Verdict::Higher,
        })
    }

    /// The paper's value as text; empty where it gives none.
    pub(crate) fn paper_text(&self) -> String {
        match self.paper {
            Published::None => String::new(),
            Published::One(value) => plain(value),
            Published::Range([low, high]) => format!("{} to {}", plain(low), plain(high)),
        }
    }

    /// Ours as text.
    pub(crate) fn ours_text(&self) -> String {
        // No minus before what rounds to zero.
        let shown = |value| figure(if value > -0.005 && value < 0.0 { 0.0 } else { value });
        match (self.ours.map(shown), self.range.map(|ends| ends.map(shown))) {
            (None, _) => "-".to_owned(),
            (Some(ours), Some([low, high])) if low != high => format!("{ours} ({low} to {high})"),
            (Some(ours), _) => ours,
        }
    }
}

/// A value of a paper, with the digits that it has there.
fn plain(value: f64) -> String {
    format!("{value}")
}

/// A row that was run, or left out.
#[derive(Clone, Debug)]
pub struct Reproduced {
    /// Its paper's name.
    pub paper: String,
    /// `PAPER/ROW`.
    pub name: String,
    /// Table or figure, and section.
    pub place: String,
    /// Subject.
    pub what: String,
    /// Difference between the paper's setting and ours.
    pub differs: String,
    /// Command that yields it.
    pub command: String,
    /// Kind of time.
    pub time: Time,
    /// Reason why it is not run; empty otherwise.
    pub why: String,
    /// Its figures.
    pub figures: Vec<Compared>,
    /// Runs with a block trace.
    pub plots: Vec<(String, Measured)>,
}

impl Reproduced {
    /// A row with these figures.
    pub fn new(
        paper: &Paper,
        row: &Row,
        figures: Vec<Compared>,
        plots: Vec<(String, Measured)>,
    ) -> Reproduced {
        let name = format!("{}/{}", paper.id, row.id);
        let command = match row.command.as_str() {
            "" => format!("syncline-lab reproduce {name}"),
            command => command.to_owned(),
        };
        Reproduced {
            paper: paper.id.clone(),
            name,
            place: row.place.clone(),
            what: row.what.clone(),
            differs: row.differs.clone(),
            command,
            time: row.time,
            why: row.why.clone(),
            figures,
            plots,
        }
    }

    /// A row without values of ours.
    pub fn not_run(paper: &Paper, row: &Row) -> Reproduced {
        let figures =
            row.figures.iter().map(|figure| Compared::new(row, figure, None, Vec::new())).collect();
        Reproduced::new(paper, row, figures, Vec::new())
    }

    /// A word on the time that it takes, or the reason why it was left out.
    pub fn note(&self) -> String {
        match self.time {
            Time::None => self.why.clone(),
            Time::Real => format!("real time; {}", self.differs),
            Time::Virtual => self.differs.clone(),
        }
    }

    fn text(&self, full: bool) -> String {
        let mut text = format!("\n{}  {}: {}\n", self.name, self.place, self.what);
        if !self.figures.is_empty() {
            let head = ["figure", "unit", "paper", "here"].map(str::to_owned).to_vec();
            let rows = self.figures.iter().map(|compared| {
                let texts = [compared.paper_text(), compared.ours_text()];
                [vec![compared.name.clone(), compared.unit.clone()], texts.to_vec()].concat()
            });
            let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
            text += &aligned(&rows, 2);
        }
        self.notes(full).iter().fold(text, |text, note| text + note + "\n")
    }

    /// The note, and each cause of a difference once.
    pub(crate) fn notes(&self, full: bool) -> Vec<String> {
        let mut notes = vec![self.note()];
        let mut add = |note: String| {
            if !notes.contains(&note) {
                notes.push(note);
            }
        };
        for compared in self.figures.iter().filter(|compared| compared.ours.is_some()) {
            if !compared.cause.is_empty() {
                add(compared.cause.clone());
            }
            if !full && !compared.length.is_empty() {
                add(format!("Short form: {}", compared.length));
            }
        }
        notes.retain(|note| !note.is_empty());
        notes
    }
}

/// Everything that was reproduced.
#[derive(Clone, Debug)]
pub struct Document {
    /// True for the papers' lengths.
    pub full: bool,
    /// True if rows are missing because the run was interrupted or failed.
    pub interrupted: bool,
    /// In the catalogue's order.
    pub rows: Vec<Reproduced>,
}

/// First line of every form of a document that lacks rows.
pub(crate) const INTERRUPTED: &str = "Interrupted: rows that are missing were not run.";

/// Line of a document in the short form.
pub(crate) const SHORT: &str =
    "Short form, for a quick look: lengths below the papers', which change some figures; --full.";

#[derive(Serialize)]
struct RowJson<'a> {
    row: &'a str,
    paper: &'a str,
    label: String,
    what: &'a str,
    time: &'a str,
    command: &'a str,
    note: String,
}

#[derive(Serialize)]
struct FigureJson<'a> {
    row: &'a str,
    paper: &'a str,
    label: String,
    figure: &'a str,
    unit: &'a str,
    published: Option<[f64; 2]>,
    published_text: String,
    ours: Option<f64>,
    ours_text: String,
    range: Option<[f64; 2]>,
    cause: &'a str,
    length: &'a str,
}

impl Document {
    /// The JSON text, with a final newline.
    pub fn to_json(&self) -> String {
        let rows = self.rows.iter().map(|row| RowJson {
            row: &row.name,
            paper: &row.paper,
            label: row.place.clone(),
            what: &row.what,
            time: match row.time {
                Time::Virtual => "virtual",
                Time::Real => "real",
                Time::None => "none",
            },
            command: &row.command,
            note: row.note(),
        });
        let figures = self.rows.iter().flat_map(|row| {
            row.figures.iter().map(|compared| FigureJson {
                row: &row.name,
                paper: &row.paper,
                label: format!("{}: {}", row.id(), compared.name),
                figure: &compared.name,
                unit: &compared.unit,
                published: compared.paper.bounds(),
                published_text: compared.paper_text(),
                ours: compared.ours,
                ours_text: compared.ours_text(),
                range: compared.range,
                cause: &compared.cause,
                length: &compared.length,
            })
        });
        let document = serde_json::json!({
            "schema": SCHEMA,
            "form": if self.full { "full" } else { "short" },
            "interrupted": self.interrupted,
            "rows": rows.collect::<Vec<_>>(),
            "figures": figures.collect::<Vec<_>>(),
        });
        format!("{document:#}\n")
    }

    /// A table for each row.
    pub fn to_text(&self) -> String {
        let mut first = String::new();
        if self.interrupted {
            first += &format!("{INTERRUPTED}\n");
        }
        if !self.full && self.rows.iter().any(|row| !row.figures.is_empty()) {
            first += &format!("{SHORT}\n");
        }
        self.rows.iter().fold(first, |text, row| text + &row.text(self.full))
    }

    /// Names, places and subjects, a line each.
    pub fn list(&self) -> String {
        let head = ["row", "time", "in the paper", "what"].map(str::to_owned).to_vec();
        let rows = self.rows.iter().map(|row| {
            let time = match row.time {
                Time::Virtual => "virtual",
                Time::Real => "real",
                Time::None => "not run",
            };
            [row.name.as_str(), time, &row.place, &row.what].map(str::to_owned).to_vec()
        });
        let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
        aligned(&rows, 4)
    }
}

impl Reproduced {
    /// Its name without the paper's.
    fn id(&self) -> &str {
        self.name.split_once('/').map_or(&self.name, |(_, id)| id)
    }
}
