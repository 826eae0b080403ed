//! Plans: a TOML file to configurations, the same and in the same order as `syncline.sweeps.Plan`.

use std::collections::{BTreeMap, HashSet};
use std::path::{Component, Path, PathBuf};

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::document;
use syncline_cli::error::{Failure, Result, sentence};

/// Axes, options and columns of each kind of sweep: the file of the Python package.
const KINDS: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../crates/libs/syncline-py/python/syncline/sweeps/kinds.json"
));

/// Field of a task for each axis.
const FIELDS: [(&str, &str); 8] = [
    ("traces", "trace"),
    ("workloads", "workload"),
    ("policies", "policy"),
    ("sizes", "size"),
    ("devices", "device"),
    ("options", "options"),
    ("seeds", "seed"),
    ("samples", "sample"),
];

/// One figure of a row.
pub(super) struct Column {
    pub name: String,
    /// `int64` or `float64`.
    pub kind: String,
    /// Place in the command's document: names and numbers, by dots.
    pub place: String,
}

/// A kind of sweep: the command, its axes and figures.
pub(super) struct Kind {
    pub name: String,
    /// In the order of the product, with true where one is required.
    axes: Vec<(String, bool)>,
    /// Options of the command.
    pub options: Vec<String>,
    pub columns: Vec<Column>,
}

impl Kind {
    fn named(name: &str) -> Result<Kind> {
        let all: Map<String, Value> = serde_json::from_str(KINDS).unwrap_or_default();
        let Some(kind) = all.get(name) else {
            let known: Vec<&str> = all.keys().map(String::as_str).collect();
            let known = known.join(", ");
            return Err(failed(format!("unknown sweep `{name}`; choose one of {known}")));
        };
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let axes = list(&kind["axes"]).into_iter();
        let axes = axes.map(|axis| (text(&axis[0]), axis[1] == true)).collect();
        let columns = kind["columns"].as_object().cloned().unwrap_or_default();
        let column =
            |(name, at): (String, Value)| Column { name, kind: text(&at[0]), place: text(&at[1]) };
        Ok(Kind {
            name: name.to_owned(),
            axes,
            options: list(&kind["options"]).iter().map(text).collect(),
            columns: columns.into_iter().map(column).collect(),
        })
    }
}

/// One configuration; its result is one row.
#[derive(Clone)]
pub(super) struct Task {
    /// Everything that the result depends on, null where the configuration has none.
    pub fields: Map<String, Value>,
    /// The file that the command opens: the trace, from the directory of the plan.
    pub location: Option<PathBuf>,
}

impl Task {
    /// A field's text.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.fields[name].as_str()
    }

    /// Digest of all fields.
    pub fn key(&self) -> String {
        let text = document::python(&Value::Object(self.fields.clone()));
        let digest = Sha256::digest(text.as_bytes());
        digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The axes of a sweep.
pub(super) struct Plan {
    pub kind: Kind,
    axes: BTreeMap<&'static str, Vec<Value>>,
    /// Directory that relative traces start from.
    directory: PathBuf,
}

impl Plan {
    /// Reads a plan. What only Python does is refused.
    pub fn load(path: &Path) -> Result<Plan> {
        let read = std::fs::read_to_string(path).map_err(|err| Failure::host(path, &err))?;
        let at = |text: String| failed(format!("{}: {text}", path.display()));
        let document: toml::Table = toml::from_str(&read)
            .map_err(|err| at(format!("{}; mend the TOML", sentence(err.message()))))?;
        let known = |key: &&String| *key != "what" && !FIELDS.iter().any(|(axis, _)| axis == key);
        if let Some(key) = document.keys().find(known) {
            let known: Vec<&str> = FIELDS.iter().map(|(axis, _)| *axis).collect();
            let known = known.join(", ");
            return Err(at(format!("unknown key `{key}`; known are what, {known}")));
        }
        let what = document.get("what").map_or("cache", |what| what.as_str().unwrap_or_default());
        let kind = Kind::named(what)?;
        let mut axes = BTreeMap::new();
        for (axis, _) in FIELDS {
            let given = document.get(axis).map_or(Ok(Vec::new()), |value| values(axis, value));
            axes.insert(axis, given.map_err(at)?);
        }
        let whole = std::path::absolute(path).map_err(|err| Failure::host(path, &err))?;
        let directory = whole.parent().map(normal).unwrap_or_default();
        let plan = Plan { kind, axes, directory };
        plan.check()?;
        Ok(plan)
    }

    fn check(&self) -> Result<()> {
        let Plan { kind, axes, .. } = self;
        for (axis, _) in axes.iter().filter(|(_, values)| !values.is_empty()) {
            if !kind.axes.iter().any(|(name, _)| name == axis) {
                let what = &kind.name;
                return Err(failed(format!("a sweep of `{what}` has no `{axis}`; leave it out")));
            }
        }
        for (axis, _) in kind.axes.iter().filter(|(_, required)| *required) {
            if axes[axis.as_str()].is_empty() {
                let what = &kind.name;
                return Err(failed(format!(
                    "a sweep of `{what}` needs `{axis}`; name at least one"
                )));
            }
        }
        if kind.name == "bench" && axes["traces"].is_empty() == axes["workloads"].is_empty() {
            let text = "a sweep of `bench` needs either `traces` of system calls or `workloads`";
            return Err(failed(text.to_owned()));
        }
        let remote = axes["traces"].iter().filter_map(Value::as_str).find(|t| t.contains("://"));
        match remote {
            Some(url) => Err(super::needs_python(url)),
            None if !axes["samples"].is_empty() => Err(super::needs_python("`samples`")),
            None => Ok(()),
        }
    }

    /// The plan as the directory of the results keeps it.
    pub fn document(&self, version: &str) -> Value {
        let mut document = Map::new();
        document.insert("schema".to_owned(), "syncline.sweep-plan/1".into());
        document.insert("what".to_owned(), self.kind.name.clone().into());
        document.insert("version".to_owned(), version.into());
        for (axis, values) in &self.axes {
            document.insert((*axis).to_owned(), values.clone().into());
        }
        document.into()
    }

    /// All configurations, in the order of the axes; those named twice are there once.
    pub fn tasks(&self) -> Result<Vec<Task>> {
        let mut fields: Map<String, Value> =
            FIELDS.iter().map(|(_, field)| ((*field).to_owned(), Value::Null)).collect();
        fields.insert("what".to_owned(), self.kind.name.clone().into());
        fields.insert("options".to_owned(), "".into());
        let mut tasks = vec![Task { fields, location: None }];
        for (axis, _) in &self.kind.axes {
            let field = FIELDS.iter().find(|(name, _)| name == axis).map_or("", |(_, field)| field);
            let values = match axis.as_str() {
                "traces" => self.traces()?,
                axis => self.axes[axis].iter().map(|value| (value.clone(), None)).collect(),
            };
            if !values.is_empty() {
                tasks = tasks.iter().flat_map(|task| with(task, field, &values)).collect();
            }
        }
        let mut seen = HashSet::new();
        tasks.retain(|task| seen.insert(task.key()));
        Ok(tasks)
    }

    /// Traces by name, and the file of each.
    fn traces(&self) -> Result<Vec<(Value, Option<PathBuf>)>> {
        let mut named = Vec::new();
        for trace in self.axes["traces"].iter().filter_map(Value::as_str) {
            if !trace.contains(['*', '?', '[']) {
                named.push((trace.into(), Some(self.directory.join(trace))));
                continue;
            }
            let start = glob::Pattern::escape(&self.directory.to_string_lossy());
            let whole = Path::new(&start).join(trace);
            let rule = glob::MatchOptions {
                case_sensitive: true,
                require_literal_separator: true,
                require_literal_leading_dot: true,
            };
            let found = glob::glob_with(&whole.to_string_lossy(), rule)
                .map_err(|err| failed(format!("{trace}: {err}; mend the pattern")))?;
            let mut found: Vec<PathBuf> = found.flatten().collect();
            if found.is_empty() {
                return Err(failed(format!("{trace}: no trace has such a name; mend the pattern")));
            }
            found.sort();
            let kept = Path::new(trace).is_absolute();
            named.extend(found.into_iter().map(|path| {
                let name = if kept { path.clone() } else { relative(&path, &self.directory) };
                (name.to_string_lossy().into(), Some(path))
            }));
        }
        Ok(named)
    }
}

fn failed(text: String) -> Failure {
    Failure::Failed(text)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The task with each value of an axis.
fn with(task: &Task, field: &str, values: &[(Value, Option<PathBuf>)]) -> Vec<Task> {
    let one = |(value, location): &(Value, Option<PathBuf>)| {
        let mut task = task.clone();
        task.fields.insert(field.to_owned(), value.clone());
        task.location = location.clone().or(task.location);
        task
    };
    values.iter().map(one).collect()
}

/// Values of an axis: a list, or one.
fn values(axis: &str, given: &toml::Value) -> std::result::Result<Vec<Value>, String> {
    let list = match given {
        toml::Value::Array(list) => list.as_slice(),
        one => std::slice::from_ref(one),
    };
    let one = |value: &toml::Value| match (axis, value) {
        ("seeds", toml::Value::Integer(seed)) => Ok((*seed).into()),
        ("samples", toml::Value::Float(share)) => Ok((*share).into()),
        ("samples", toml::Value::Integer(share)) => Ok((*share).into()),
        ("sizes", toml::Value::Integer(size)) => Ok(size.to_string().into()),
        ("seeds" | "samples", _) => Err(format!("`{axis}` are numbers; mend the plan")),
        (_, toml::Value::String(text)) => Ok(text.clone().into()),
        _ => Err(format!("`{axis}` are texts; mend the plan")),
    };
    list.iter().map(one).collect()
}

/// A whole path without `.` and `..`, by its text.
fn normal(path: &Path) -> PathBuf {
    let mut kept = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(kept.pop()),
            part => kept.push(part),
        }
    }
    kept
}

/// A whole path from a directory.
fn relative(path: &Path, directory: &Path) -> PathBuf {
    let path = normal(path);
    let common = path.components().zip(directory.components()).take_while(|(a, b)| a == b).count();
    let up = directory.components().skip(common).map(|_| Component::ParentDir);
    up.chain(path.components().skip(common)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_named_from_the_plan() {
        let at = |path: &str| relative(Path::new(path), Path::new("/a/b"));
        assert_eq!(at("/a/b/c.trace"), Path::new("c.trace"));
        assert_eq!(at("/a/b/../x/./c.trace"), Path::new("../x/c.trace"));
    }

    #[test]
    fn every_kind_has_axes_and_columns() {
        for what in ["cache", "replay", "lifetime", "bench"] {
            let kind = Kind::named(what).unwrap();
            assert!(kind.axes.len() > 2 && kind.options.len() > 1 && kind.columns.len() > 10);
        }
    }
}
