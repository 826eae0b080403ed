//! `cargo xtask run`: long tests, benchmarks and comparisons by name, from the table `runs.toml`.
//!
//! A run builds its packages, then gives its command to sh in the root of the workspace.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode};

use serde::Deserialize;

/// The table, from the root.
pub const TABLE: &str = "xtask/runs.toml";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(rename = "subject")]
    subjects: Vec<Subject>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Subject {
    name: String,
    #[serde(rename = "run")]
    runs: Vec<Run>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    name: String,
    help: String,
    #[serde(default)]
    needs: String,
    /// Packages of the release build.
    #[serde(default)]
    build: Vec<String>,
    /// Variables that the caller has to give, with their meaning.
    #[serde(default)]
    given: BTreeMap<String, String>,
    /// Variables with defaults.
    #[serde(default)]
    set: BTreeMap<String, String>,
    command: String,
}

/// Names of all runs of a table.
pub fn names(table: &str) -> Result<Vec<String>, String> {
    let runs = parse(table)?.subjects.into_iter().flat_map(|subject| subject.runs);
    Ok(runs.map(|run| run.name).collect())
}

fn parse(table: &str) -> Result<Table, String> {
    toml::from_str(table).map_err(|error| format!("{TABLE}: {error}"))
}

/// Lists the runs, or runs the one that the first argument names.
pub fn main(root: &Path, arguments: &[&str]) -> ExitCode {
    let done = || {
        let path = root.join(TABLE);
        let text = std::fs::read_to_string(path).map_err(|error| format!("{TABLE}: {error}"))?;
        let table = parse(&text)?;
        let Some((name, rest)) = arguments.split_first() else {
            print!("{}", list(&table));
            return Ok(ExitCode::SUCCESS);
        };
        let run = table.subjects.iter().flat_map(|subject| &subject.runs).find(|r| r.name == *name);
        let run = run.ok_or_else(|| format!("no run {name}; `cargo xtask run` lists them"))?;
        let outer = |variable: &str| std::env::var(variable).ok();
        let (variables, rest) = variables(run, rest, &outer)?;
        execute(root, run, &variables, &rest)
    };
    done().unwrap_or_else(|error: String| {
        eprintln!("run: {error}");
        ExitCode::from(2)
    })
}

fn list(table: &Table) -> String {
    let mut text = String::from("cargo xtask run NAME [VARIABLE=VALUE...] [ARGUMENT...]\n");
    for subject in &table.subjects {
        text += &format!("\n{}\n", subject.name);
        for run in &subject.runs {
            let needs = Some(&run.needs).filter(|needs| !needs.is_empty());
            let needs = needs.map_or_else(String::new, |needs| format!(" ({needs})"));
            text += &format!("  {:20} {}{needs}\n", run.name, run.help);
            for (name, meaning) in &run.given {
                text += &format!("{:23}{name}={meaning}\n", "");
            }
            let set: Vec<String> = run.set.iter().map(|(name, v)| format!("{name}={v}")).collect();
            if !set.is_empty() {
                text += &format!("{:23}{}\n", "", set.join(" "));
            }
        }
    }
    text
}

/// Values of the run's variables, and the arguments that are none. `outer` is the environment.
fn variables(
    run: &Run,
    arguments: &[&str],
    outer: &dyn Fn(&str) -> Option<String>,
) -> Result<(BTreeMap<String, String>, Vec<String>), String> {
    let (mut values, mut rest) = (run.set.clone(), Vec::new());
    for name in run.set.keys().chain(run.given.keys()) {
        values.extend(outer(name).map(|value| (name.clone(), value)));
    }
    for argument in arguments {
        match argument.split_once('=') {
            Some((name, value)) if run.set.contains_key(name) || run.given.contains_key(name) => {
                values.insert(name.to_owned(), value.to_owned());
            }
            Some((name, _)) if is_variable(name) => {
                let known: Vec<&str> =
                    run.set.keys().chain(run.given.keys()).map(|s| &**s).collect();
                return Err(format!("{} has no {name}; it has: {}", run.name, known.join(" ")));
            }
            _ => rest.push((*argument).to_owned()),
        }
    }
    match run.given.iter().find(|(name, _)| !values.contains_key(*name)) {
        Some((name, meaning)) => Err(format!("{} needs {name}=..., {meaning}", run.name)),
        None => Ok((values, rest)),
    }
}

fn is_variable(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

fn execute(
    root: &Path,
    run: &Run,
    variables: &BTreeMap<String, String>,
    arguments: &[String],
) -> Result<ExitCode, String> {
    let bin = crate::target(root).join("release");
    if !run.build.is_empty() {
        let mut cargo = Command::new(crate::cargo());
        cargo.args(["build", "--quiet", "--release"]);
        cargo.args(run.build.iter().flat_map(|package| ["-p", package]));
        if !cargo.current_dir(root).status().is_ok_and(|status| status.success()) {
            return Err("the build failed".to_owned());
        }
    }
    let mut shell = Command::new("sh");
    shell.args(["-euc", &run.command, &run.name]).args(arguments).current_dir(root);
    shell.envs(variables).env("SYNCLINE", bin.join("syncline")).env("BIN", bin);
    let status = shell.status().map_err(|error| format!("sh cannot be run: {error}"))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &str) -> Run {
        toml::from_str(&format!("name = \"a\"\nhelp = \"\"\ncommand = \"\"\n{text}")).unwrap()
    }

    #[test]
    fn arguments_are_variables_or_the_commands_own() {
        let run = run("set = { N = \"1\", M = \"2\" }\ngiven = { DIR = \"a directory\" }");
        let outer = |name: &str| (name == "M").then(|| "3".to_owned());
        let (values, rest) = variables(&run, &["DIR=x=y", "--only=b", "N=4"], &outer).unwrap();
        let wanted = [("DIR", "x=y"), ("M", "3"), ("N", "4")];
        assert!(values.iter().map(|(n, v)| (&**n, &**v)).eq(wanted), "{values:?}");
        assert_eq!(rest, ["--only=b"]);
        assert!(variables(&run, &[], &outer).unwrap_err().contains("DIR=..., a directory"));
        assert!(variables(&run, &["DIR=x", "K=1"], &outer).unwrap_err().contains("has no K"));
    }

    #[test]
    fn the_table_names_each_run_once() {
        let text = std::fs::read_to_string(crate::root().join(TABLE)).unwrap();
        let mut all = names(&text).unwrap();
        assert!(list(&parse(&text).unwrap()).contains("crash-long"));
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
