//! Execution of the commands of a run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::spec::{Kind, Run};
use super::store::{Results, SCHEMA, flatten};

/// The release build of `syncline`, with `syncline-lab` beside it.
pub fn build_release(root: &Path) -> Result<PathBuf, String> {
    let arguments = ["build", "--quiet", "--release", "-p", "syncline-cli", "-p", "syncline-lab"];
    build(root, &arguments)?;
    Ok(crate::target(root).join("release/syncline"))
}

/// `syncline` as `cargo test` has just built it for its tests, with `syncline-lab` beside it.
pub fn built_by_tests(root: &Path) -> PathBuf {
    crate::target(root).join("debug/syncline")
}

fn build(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let status = Command::new(crate::cargo()).args(arguments).current_dir(root).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err("the command line does not build: correct that first".to_owned()),
        Err(error) => Err(format!("cargo cannot be run: {error}")),
    }
}

/// Runs the commands one after the other; results are cut to `metrics` and the keys of the run.
pub fn execute(
    root: &Path,
    run: &Run,
    program: &Path,
    metrics: &BTreeSet<String>,
) -> Result<Results, String> {
    let keep: BTreeSet<String> = metrics.iter().chain(&run.keys).cloned().collect();
    let mut results = Results {
        schema: SCHEMA.to_owned(),
        id: run.id.clone(),
        kind: run.kind.name().to_owned(),
        commands: run.shown_commands(),
        commit: commit(root),
        ..Results::default()
    };
    if run.kind == Kind::Wall {
        results.host = host();
        results.kernel = said(root, "uname", &["-sr"]);
        results.date = said(root, "date", &["-u", "+%Y-%m-%d"]);
    }
    for (number, command) in run.commands.iter().enumerate() {
        let first = results.records.len();
        one(root, run, command, program, &keep, &mut results)?;
        let tags = run.tags.get(number).into_iter().flatten();
        for (name, value) in tags {
            for record in &mut results.records[first..] {
                record.insert(name.clone(), Value::String(value.clone()));
            }
        }
    }
    Ok(results)
}

fn one(
    root: &Path,
    run: &Run,
    command: &str,
    program: &Path,
    keep: &BTreeSet<String>,
    results: &mut Results,
) -> Result<(), String> {
    let json = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
    let words = command.split_whitespace().map(|word| match word {
        "{syncline}" => program.as_os_str().to_owned(),
        "{lab}" => program.with_file_name("syncline-lab").into_os_string(),
        "{json}" => json.path().as_os_str().to_owned(),
        word => word.into(),
    });
    let words: Vec<std::ffi::OsString> = words.collect();
    let Some((name, arguments)) = words.split_first() else {
        return Err(format!("{}: an empty command", run.id));
    };
    // A long run shows its progress.
    let mut process = Command::new(name);
    let output = process.args(arguments).current_dir(root).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("{}: {name:?}: {error}", run.id))?;
    if !output.status.success() {
        return Err(format!("{}: {command} failed", run.id));
    }
    let text = if command.contains("{json}") {
        std::fs::read_to_string(json.path()).map_err(|error| error.to_string())?
    } else {
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    if run.records == "lines" {
        results.records.extend(table_of_words(&text).iter().map(|record| flatten(record, keep)));
    } else if run.records == "printed" {
        results.records.extend(printed(&text).iter().map(|record| flatten(record, keep)));
    } else if text.starts_with('{') {
        let document: Value =
            serde_json::from_str(&text).map_err(|error| format!("{}: {error}", run.id))?;
        let records = records_of(&document, run)?;
        results.records.extend(records.iter().map(|record| flatten(record, keep)));
    } else {
        results.text += text.split("\n\n").next().unwrap_or_default().trim_end();
    }
    Ok(())
}

/// The array of records, or those of nested objects.
fn records_of(document: &Value, run: &Run) -> Result<Vec<Value>, String> {
    let found = document.pointer(&run.records);
    match found {
        Some(Value::Array(records)) if run.levels.is_empty() => Ok(records.clone()),
        Some(object @ Value::Object(_)) if !run.levels.is_empty() => {
            let mut records = Vec::new();
            nested(object, &run.levels, &serde_json::Map::new(), &mut records);
            Ok(records)
        }
        _ => Err(format!("{}: no array or nested objects {} in its JSON", run.id, run.records)),
    }
}

fn nested(
    value: &Value,
    levels: &[String],
    above: &serde_json::Map<String, Value>,
    records: &mut Vec<Value>,
) {
    let Value::Object(fields) = value else { return };
    let Some((level, below)) = levels.split_first() else {
        let all = above.clone().into_iter().chain(fields.clone()).collect();
        return records.push(Value::Object(all));
    };
    for (key, value) in fields {
        let mut above = above.clone();
        above.insert(level.clone(), Value::from(key.as_str()));
        nested(value, below, &above, records);
    }
}

/// Records of lines of words under a line of names.
fn table_of_words(text: &str) -> Vec<Value> {
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
    let number = |word: &str| serde_json::from_str(word).ok().filter(Value::is_number);
    let value = |word: &str| number(word).unwrap_or_else(|| word.into());
    lines
        .map(|line| {
            let words = line.split_whitespace().map(value);
            names.iter().map(|name| (*name).to_owned()).zip(words).collect()
        })
        .collect()
}

/// Objects that tests print, one a line, behind what the harness says there.
fn printed(text: &str) -> Vec<Value> {
    let objects = text.lines().filter_map(|line| line.find("{\"").map(|at| &line[at..]));
    objects.filter_map(|object| serde_json::from_str(object).ok()).collect()
}

/// The commit of the checkout, with `-dirty` if anything but documents differs: the runs before
/// this one have stored their results there.
fn commit(root: &Path) -> String {
    let commit = said(root, "git", &["describe", "--always", "--abbrev=10"]);
    let changed = said(root, "git", &["status", "--porcelain", "--", ".", ":!docs", ":!*.md"]);
    if changed.is_empty() { commit } else { commit + "-dirty" }
}

/// First line of the output of a program, or nothing.
fn said(root: &Path, program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(root).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

/// Processor model and number of processors.
fn host() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let models: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("model name"))
        .filter_map(|rest| rest.split_once(": "))
        .map(|(_, name)| name.trim())
        .collect();
    format!("{} x {}", models.len(), models.first().copied().unwrap_or("processor"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(text: &str) -> Run {
        let mut spec = crate::figures::spec::Spec::default();
        spec.add(text).unwrap();
        spec.runs.remove(0)
    }

    fn results(text: &str) -> Result<Results, String> {
        execute(Path::new("."), &run(text), Path::new("echo"), &BTreeSet::from(["a".to_owned()]))
    }

    #[test]
    fn output_is_text_json_or_a_table() {
        let text = |command: &str, rest: &str| {
            format!("[[run]]\nid = \"r\"\nkind = \"exact\"\ncommands = [{command}]\n{rest}")
        };
        let said = results(&text("'{syncline} a b'", "")).unwrap();
        assert_eq!((said.text.as_str(), said.commands[0].as_str()), ("a b", "syncline a b"));
        let json = results(&text("'echo {\"x\":[{\"a\":1,\"b\":2}]}'", "records = \"/x\"\n"));
        assert_eq!(Value::Object(json.unwrap().records[0].clone()), json!({"a": 1}));
        let tags = "tags = [{ t = \"u\" }]\nrecords = \"/x\"\n";
        let json = results(&text("'echo {\"x\":[{\"a\":1}]}'", tags)).unwrap();
        assert_eq!(json.records[0]["t"], "u");
        let exact = results(&text("'echo a'", "")).unwrap();
        assert!(exact.host.is_empty() && exact.date.is_empty());
        let wall = results(&text("'echo a'", "").replace("exact", "wall")).unwrap();
        assert!(wall.host.contains(" x ") && wall.kernel.contains("Linux"), "{wall:?}");
        assert!(wall.date.starts_with("20"), "{wall:?}");
        let error = results(&text("'echo {\"x\":1}'", "")).unwrap_err();
        assert!(error.contains("no array"), "{error}");
        let levels = "records = \"/x\"\nlevels = [\"k\"]\nkeys = [\"k\"]\n";
        let json = results(&text("'echo {\"x\":{\"one\":{\"a\":1},\"two\":{\"a\":2}}}'", levels));
        let records = json.unwrap().records;
        assert_eq!(Value::Object(records[1].clone()), json!({"k": "two", "a": 2}));
        assert!(results(&text("'false'", "")).unwrap_err().contains("failed"));
        let words = table_of_words("policy pages rate\nlru 16 2.50\n");
        assert_eq!(words, [json!({"policy": "lru", "pages": 16, "rate": 2.5})]);
        let said = printed("running 1 test\ntest a ... {\"a\":1}\n{:?}\n{\"a\":2}\nok\n");
        assert_eq!(said, [json!({"a": 1}), json!({"a": 2})]);
    }
}
