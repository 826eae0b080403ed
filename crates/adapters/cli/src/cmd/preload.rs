//! `preload`: becomes a program with the library in front of its C library.

use std::ffi::OsString;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::args::Preload;
use crate::error::{Failure, Result, plain};

/// File name that cargo gives the library.
const LIBRARY: &str = "libsyncline_preload.so";
/// Environment variable that the loader reads.
const LOADER: &str = "LD_PRELOAD";

/// Does not come back where the program can be started.
pub(crate) fn run(args: &Preload) -> Result<()> {
    let library = library(args)?;
    let mut preload = OsString::from(&library);
    if let Some(others) = std::env::var_os(LOADER).filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let Some((program, words)) = args.command.split_first() else {
        return Err(Failure::Usage("no program; give one after --".to_owned()));
    };
    let mut command = Command::new(program);
    command.args(words).env(LOADER, preload).env("SYNCLINE_PRELOAD_RULES", rules(args)?);
    match &args.rules {
        Some(file) => {
            let file = std::fs::canonicalize(file).map_err(|err| Failure::host(file, &err))?;
            command.env("SYNCLINE_PRELOAD_RULES_FILE", file)
        }
        None => command.env_remove("SYNCLINE_PRELOAD_RULES_FILE"),
    };
    if let Some(report) = &args.report {
        // Programs change their directory.
        let place = if report == Path::new("-") { Ok(report.clone()) } else { absolute(report) };
        command.env("SYNCLINE_PRELOAD_REPORT", place?);
    }
    let err = command.exec();
    Err(Failure::Failed(format!(
        "{}: {}; check the program after --",
        Path::new(program).display(),
        plain(&err)
    )))
}

/// The globs as rules, strict ones last.
fn rules(args: &Preload) -> Result<String> {
    let mut text = String::new();
    for (word, globs) in [("relaxed", &args.relaxed), ("strict", &args.strict), ("log", &args.log)]
    {
        for glob in globs {
            if glob.trim().is_empty() || glob.contains('\n') {
                return Err(Failure::Usage(format!("--{word}: an empty glob; give a name")));
            }
            // The library would run the program with every file strict.
            glob::Pattern::new(glob.trim()).map_err(|err| {
                Failure::Usage(format!("--{word}: `{glob}` is not a glob: {}; correct it", err.msg))
            })?;
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{word} {glob}");
        }
    }
    if text.is_empty() && args.rules.is_none() {
        let text =
            "no rules, so nothing would change; give --relaxed GLOB, --log GLOB or --rules FILE";
        return Err(Failure::Usage(text.to_owned()));
    }
    Ok(text)
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|err| Failure::host(path, &err))
}

fn library(args: &Preload) -> Result<PathBuf> {
    let path = match &args.library {
        Some(path) => std::fs::canonicalize(path).map_err(|err| Failure::host(path, &err))?,
        None => installed().ok_or_else(|| {
            Failure::Failed(format!(
                "{LIBRARY} is neither beside this program nor in ../lib; build it with `cargo \
                 build --release -p syncline-preload`, or give --library"
            ))
        })?,
    };
    if path.as_os_str().as_bytes().iter().any(|byte| b" :".contains(byte)) {
        return Err(Failure::Failed(format!(
            "{}: the loader accepts no path with spaces or colons; copy the library elsewhere and \
             give --library",
            path.display()
        )));
    }
    Ok(path)
}

fn installed() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let dir = program.parent()?;
    let places = [dir.to_owned(), dir.join("../lib"), dir.join("../lib/syncline")];
    let found = places.into_iter().map(|place| place.join(LIBRARY)).find(|path| path.is_file())?;
    std::fs::canonicalize(found).ok()
}
