//! Stored results: `ID.json` beside the lists of runs.
//!
//! ```text
//! { "schema": "syncline.figures/1", "id", "kind": "exact" | "wall", "commands": [...],
//!   "commit", "host", "kernel", "date",          where and when
//!   "origin",                                    of results that were taken over from a document
//!   "records": [{key: value}]  |  "text"  |  "columns": [...], "rows": [[...]] }
//! ```

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::DIR;

pub const SCHEMA: &str = "syncline.figures/1";

/// One flat record of a run.
pub type Record = Map<String, Value>;

/// Results of one run.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Results {
    pub schema: String,
    pub id: String,
    pub kind: String,
    pub commands: Vec<String>,
    /// Foreground, whole run, or what else a stored table counts.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub scope: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub commit: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kernel: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub date: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub origin: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub records: Vec<Record>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<Vec<String>>,
}

fn path_of(root: &Path, id: &str) -> std::path::PathBuf {
    root.join(DIR).join(format!("{id}.json"))
}

/// Ids of all stored results.
pub fn ids(root: &Path) -> Result<Vec<String>, String> {
    let entries = std::fs::read_dir(root.join(DIR)).map_err(|error| format!("{DIR}: {error}"))?;
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let ids = names.filter_map(|name| name.strip_suffix(".json").map(str::to_owned));
    let mut ids: Vec<String> = ids.collect();
    ids.sort();
    Ok(ids)
}

pub fn exists(root: &Path, id: &str) -> bool {
    path_of(root, id).is_file()
}

pub fn read(root: &Path, id: &str) -> Result<Results, String> {
    let path = path_of(root, id);
    let text = std::fs::read_to_string(&path)
        .map_err(|error| format!("{DIR}/{id}.json: {error}; run cargo xtask figures {id} once"))?;
    let results: Results =
        serde_json::from_str(&text).map_err(|error| format!("{DIR}/{id}.json: {error}"))?;
    if results.schema != SCHEMA || results.id != id {
        return Err(format!("{DIR}/{id}.json is not {SCHEMA} of {id}: write it anew"));
    }
    Ok(results)
}

pub fn write(root: &Path, id: &str, results: &Results) -> Result<(), String> {
    std::fs::write(path_of(root, id), to_text(results)?)
        .map_err(|error| format!("{DIR}/{id}.json cannot be written: {error}"))
}

/// JSON with one record or row a line, so that a diff shows which one changed.
fn to_text(results: &Results) -> Result<String, String> {
    let error = |error: serde_json::Error| error.to_string();
    let Value::Object(fields) = serde_json::to_value(results).map_err(error)? else {
        return Err("results are no object".to_owned());
    };
    let mut text = String::from("{\n");
    let mut first = true;
    for name in ["schema", "id", "kind", "commands", "scope", "commit", "host", "kernel", "date"]
        .into_iter()
        .chain(["origin", "text", "columns", "records", "rows"])
    {
        let Some(value) = fields.get(name) else { continue };
        if !std::mem::take(&mut first) {
            text.push_str(",\n");
        }
        match value {
            Value::Array(items) if matches!(name, "records" | "rows") => {
                let items: Result<Vec<_>, _> = items.iter().map(serde_json::to_string).collect();
                let items = items.map_err(error)?.join(",\n    ");
                text.push_str(&format!("  \"{name}\": [\n    {items}\n  ]"));
            }
            value => {
                let value = serde_json::to_string(value).map_err(error)?;
                text.push_str(&format!("  \"{name}\": {value}"));
            }
        }
    }
    text.push_str("\n}\n");
    Ok(text)
}

/// A record of a JSON document without its levels: `config` is lifted, `metrics` is called `whole`,
/// other objects become prefixes.
pub fn flatten(record: &Value, keep: &BTreeSet<String>) -> Record {
    let mut flat = Record::new();
    if let Value::Object(fields) = record {
        for (name, value) in fields {
            let prefix = match name.as_str() {
                "config" => "",
                "metrics" => "whole.",
                name => &format!("{name}."),
            };
            match value {
                Value::Object(below) => {
                    for (name, value) in below {
                        keep_one(&mut flat, &format!("{prefix}{name}"), value, keep);
                    }
                }
                value => keep_one(&mut flat, name, value, keep),
            }
        }
    }
    flat
}

fn keep_one(flat: &mut Record, name: &str, value: &Value, keep: &BTreeSet<String>) {
    if keep.contains(name) && !value.is_null() {
        flat.insert(name.to_owned(), value.clone());
    }
}

/// Differences of a repetition, a line each.
pub fn differences(stored: &Results, fresh: &Results) -> Vec<String> {
    let mut found = Vec::new();
    if stored.commands != fresh.commands {
        found.push("the command has changed".to_owned());
    }
    if stored.text != fresh.text {
        found.push("the output has changed".to_owned());
    }
    if stored.records.len() != fresh.records.len() {
        let (old, new) = (stored.records.len(), fresh.records.len());
        found.push(format!("{new} records, {old} are stored"));
        return found;
    }
    for (number, (old, new)) in stored.records.iter().zip(&fresh.records).enumerate() {
        let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        for name in names {
            let (old, new) = (old.get(name), new.get(name));
            if !same(old, new) {
                let show = |value: Option<&Value>| value.map_or("-".to_owned(), Value::to_string);
                let (old, new) = (show(old), show(new));
                found.push(format!("record {}: {name} is {new}, stored {old}", number + 1));
            }
        }
    }
    found
}

/// Integers and texts are equal; fractions to twelve digits, since reading decimals may lose the
/// last bits.
fn same(old: Option<&Value>, new: Option<&Value>) -> bool {
    match (old, new) {
        (Some(Value::Number(old)), Some(Value::Number(new))) => {
            let both_floats = old.is_f64() && new.is_f64();
            match (old.as_f64(), new.as_f64()) {
                (Some(a), Some(b)) if both_floats => (a - b).abs() <= 1e-12 * a.abs().max(b.abs()),
                _ => old == new,
            }
        }
        (old, new) => old == new,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn with(value: Value) -> Results {
        let keep = ["whole.bytes", "whole.rate", "sync"].map(str::to_owned).into();
        let record = flatten(&value, &keep);
        Results { records: vec![record], ..Results::default() }
    }

    #[test]
    fn records_are_flat_and_cut() {
        let value = json!({"workload": "w", "config": {"sync": "eager", "seed": 1},
            "metrics": {"bytes": 3, "rate": 0.5}, "foreground": {"bytes": 2}});
        let flat = json!({"sync": "eager", "whole.bytes": 3, "whole.rate": 0.5});
        assert_eq!(Value::Object(with(value).records[0].clone()), flat);
    }

    #[test]
    fn every_difference_is_named() {
        let a = with(json!({"metrics": {"bytes": 3, "rate": 0.5}}));
        let last_bit = f64::from_bits(0.5_f64.to_bits() + 1);
        assert!(
            differences(&a, &with(json!({"metrics": {"bytes": 3, "rate": last_bit}}))).is_empty()
        );
        let found = differences(&a, &with(json!({"metrics": {"bytes": 4, "rate": 0.500001}})));
        assert_eq!(found[0], "record 1: whole.bytes is 4, stored 3");
        assert_eq!(found.len(), 2);
        let none = Results::default();
        assert_eq!(differences(&a, &none), ["0 records, 1 are stored"]);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join(DIR)).unwrap();
        let mut results = with(json!({"metrics": {"bytes": 3, "rate": 0.5}}));
        (results.schema, results.id) = (SCHEMA.to_owned(), "a".to_owned());
        write(dir.path(), "a", &results).unwrap();
        let again = read(dir.path(), "a").unwrap();
        assert_eq!(differences(&results, &again), [""; 0]);
        assert!(read(dir.path(), "b").unwrap_err().contains("figures b"));
        std::fs::write(dir.path().join(DIR).join("c.json"), to_text(&results).unwrap()).unwrap();
        assert!(read(dir.path(), "c").unwrap_err().contains("write it anew"));
    }
}
