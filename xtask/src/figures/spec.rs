//! Declarations of runs and tables: every `*.toml` file in `docs/figures`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;

use super::DIR;

/// Keys and values that a record must have to be picked.
pub type Pick = BTreeMap<String, toml::Value>;

/// All declarations.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    #[serde(default, rename = "run")]
    pub runs: Vec<Run>,
    #[serde(default, rename = "table")]
    pub tables: Vec<Table>,
}

/// Source of results: decides if they can be checked by a new run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Counts or virtual time: every machine gives the same results.
    Exact,
    /// Virtual time that is not exact, as in a guest that counts instructions.
    Virtual,
    /// Real time of one machine.
    Wall,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Virtual => "virtual",
            Self::Wall => "wall",
        }
    }
}

/// One measurement.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    pub id: String,
    /// `{syncline}` stands for the program, `{json}` for a file that takes the results. Without
    /// `{json}` standard output is taken: as JSON, as a table of words (`records = "lines"`), else
    /// as text up to the first empty line.
    pub commands: Vec<String>,
    /// Fields that the records of each command get beside their own.
    #[serde(default)]
    pub tags: Vec<BTreeMap<String, String>>,
    pub kind: Kind,
    /// The array of records in the JSON document.
    #[serde(default = "runs_pointer")]
    pub records: String,
    /// Names of the keys of nested objects, where `records` is an object and no array: each inner
    /// object becomes a record that has the keys above it under these names.
    #[serde(default)]
    pub levels: Vec<String>,
    /// True if `--check` repeats it.
    #[serde(default)]
    pub check: bool,
    /// Fields that pick records, kept beside the metrics.
    #[serde(default = "bench_keys")]
    pub keys: Vec<String>,
}

fn runs_pointer() -> String {
    "/runs".to_owned()
}

fn bench_keys() -> Vec<String> {
    ["workload", "device", "sync", "log", "journal_mode", "mtime_update_ms", "policy", "seed"]
        .map(str::to_owned)
        .to_vec()
}

impl Run {
    /// Commands as a reader would type them.
    pub fn shown_commands(&self) -> Vec<String> {
        let shown = |command: &String| {
            let command = command.replace(" --json {json}", "");
            command.replace("{syncline}", "syncline").replace("{lab}", "syncline-lab")
        };
        self.commands.iter().map(shown).collect()
    }
}

/// One table, or one picture.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    pub name: String,
    /// Runs whose records it shows.
    pub runs: Vec<String>,
    /// Part of a run that metrics without a prefix come from: `whole` or `foreground`.
    #[serde(default)]
    pub scope: String,
    /// Head of the first column.
    #[serde(default)]
    pub head: String,
    #[serde(default)]
    pub columns: Vec<Column>,
    #[serde(default)]
    pub rows: Vec<Row>,
    /// A row for each value of this key, in the order of the records; `names` renames or, with an
    /// empty name, leaves out.
    pub each: Option<String>,
    #[serde(default)]
    pub names: BTreeMap<String, String>,
    /// Field that a record must have, and not empty, to be a row of `each`.
    pub filled: Option<String>,
    /// Pick, value and format of rows and columns that have none.
    #[serde(default)]
    pub pick: Pick,
    #[serde(default)]
    pub value: Value,
    #[serde(default, rename = "as")]
    pub format: Option<Format>,
    /// Path of an SVG file that the table becomes, as bars, in the place of Markdown.
    pub svg: Option<String>,
    /// Sentence for the caption.
    #[serde(default)]
    pub note: String,
    /// Link to the document that shows how the figures were made: the caption is then one short
    /// line, the note and this link.
    pub source: Option<String>,
    /// First words of the lines that it shows of a run whose results are a text.
    #[serde(default)]
    pub lines: Vec<String>,
}

/// One column.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    pub head: String,
    #[serde(default)]
    pub pick: Pick,
    /// Divides by the same value of the record picked by this.
    pub over: Option<Pick>,
    #[serde(default)]
    pub value: Value,
    #[serde(default, rename = "as")]
    pub format: Option<Format>,
    /// Key of a row's `text`, shown as it is.
    pub text: Option<String>,
}

/// One row.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    pub label: String,
    #[serde(default)]
    pub pick: Pick,
    #[serde(default)]
    pub value: Value,
    #[serde(default, rename = "as")]
    pub format: Option<Format>,
    /// Texts, as published figures beside ours.
    #[serde(default)]
    pub text: BTreeMap<String, String>,
}

/// One or several expressions; several are joined by " / ".
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(untagged)]
pub enum Value {
    #[default]
    None,
    One(String),
    Several(Vec<String>),
}

impl Value {
    pub fn parts(&self) -> &[String] {
        match self {
            Self::None => &[],
            Self::One(one) => std::slice::from_ref(one),
            Self::Several(several) => several,
        }
    }
}

/// Format of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Three significant digits, integers above a hundred.
    Plain,
    /// Two decimals.
    Ratio,
    /// A fraction in per cent.
    Percent,
    /// A factor as the change in per cent.
    Change,
    /// An integer.
    Count,
    /// One decimal.
    Tenth,
    /// Text of the record.
    Text,
}

impl Spec {
    /// Reads every list in `docs/figures`.
    pub fn load(root: &Path) -> Result<Self, String> {
        let mut all = Self::default();
        let dir = root.join(DIR);
        let entries = std::fs::read_dir(&dir).map_err(|e| format!("{DIR} cannot be read: {e}"))?;
        let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        files.sort();
        for file in files.iter().filter(|file| file.extension().is_some_and(|e| e == "toml")) {
            let name = file.display();
            let text = std::fs::read_to_string(file).map_err(|e| format!("{name}: {e}"))?;
            all.add(&text).map_err(|error| format!("{name}: {error}"))?;
        }
        Ok(all)
    }

    pub fn add(&mut self, text: &str) -> Result<(), String> {
        let one: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        self.runs.extend(one.runs);
        self.tables.extend(one.tables);
        Ok(())
    }

    pub fn run(&self, id: &str) -> Result<&Run, String> {
        let found = self.runs.iter().find(|run| run.id == id);
        found.ok_or_else(|| format!("no run {id}; cargo xtask figures lists them"))
    }

    pub fn table(&self, name: &str) -> Option<&Table> {
        self.tables.iter().find(|table| table.name == name)
    }

    /// Metrics of a run that some table shows.
    pub fn metrics_of(&self, id: &str) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for table in self.tables.iter().filter(|table| table.runs.iter().any(|run| run == id)) {
            let values = table.columns.iter().map(|column| &column.value);
            let values =
                values.chain(table.rows.iter().map(|row| &row.value)).chain([&table.value]);
            for part in values.flat_map(Value::parts) {
                for name in super::render::names(part) {
                    names.insert(super::render::scoped(&table.scope, name));
                }
            }
        }
        names
    }
}
