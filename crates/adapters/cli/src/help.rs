//! Help of a program: its command line with examples. The build scripts use it, too.

use std::ffi::OsString;

use clap::{Command, CommandFactory, FromArgMatches};

/// Command, then its examples: the command line, and its purpose.
pub type Examples = &'static [(&'static str, &'static [[&'static str; 2]])];

/// The command line of a program with its examples. `mount_options` ends the help of `mount`.
pub fn command<C: CommandFactory>(examples: Examples, mount_options: &str) -> Command {
    examples.iter().fold(C::command(), |command, (path, examples)| {
        let words: Vec<&str> = path.split(' ').collect();
        let mut text = text(examples);
        if *path == "mount" {
            text.push_str(mount_options);
        }
        with(command, &words, &text)
    })
}

/// Parses arguments; prints help and usage errors and ends the process then.
pub fn parse<C: CommandFactory + FromArgMatches>(
    arguments: impl IntoIterator<Item = OsString>,
    examples: Examples,
    mount_options: &str,
) -> C {
    let mut matches = command::<C>(examples, mount_options).get_matches_from(arguments);
    let parsed = C::from_arg_matches_mut(&mut matches);
    parsed.unwrap_or_else(|err| err.format(&mut C::command()).exit())
}

fn with(command: Command, path: &[&str], text: &str) -> Command {
    match path {
        [] => command.after_long_help(text.to_owned()),
        [name, rest @ ..] => command.mut_subcommand(name, |sub| with(sub, rest, text)),
    }
}

fn text(examples: &[[&str; 2]]) -> String {
    let width = examples.iter().map(|[typed, _]| typed.len()).max().unwrap_or(0);
    let lines = examples.iter().map(|[typed, what]| format!("  {typed:width$}  # {what}"));
    format!("Examples:\n{}", lines.collect::<Vec<_>>().join("\n"))
}

/// Long help of every command without subcommands, by its words.
fn leaves(command: &Command, path: &str, found: &mut Vec<(String, String)>) {
    let subs: Vec<&Command> = command.get_subcommands().filter(|sub| !sub.is_hide_set()).collect();
    if subs.is_empty() {
        found.push((path.trim().to_owned(), command.clone().render_long_help().to_string()));
    }
    for sub in subs {
        leaves(sub, &format!("{path} {}", sub.get_name()), found);
    }
}

/// For tests: panics unless each command has an example, and each example is of its command and
/// can be parsed.
pub fn check_examples<C: CommandFactory>(examples: Examples) {
    let mut found = Vec::new();
    leaves(&command::<C>(examples, ""), "", &mut found);
    let without = |(path, help): (String, String)| (!help.contains("xample")).then_some(path);
    let without: Vec<String> = found.into_iter().filter_map(without).collect();
    assert!(without.is_empty(), "no example: {without:?}");
    for (path, examples) in examples {
        for [typed, _] in *examples {
            assert!(typed.contains(path), "{path}: an example of something else");
            let parsed = C::command().try_get_matches_from(typed.split(' '));
            assert!(parsed.is_ok(), "{typed}: {}", parsed.unwrap_err());
        }
    }
}
