//! Help of a program: its command line with examples. The build scripts use it, too.

use std::ffi::OsString;

use clap::{Command, CommandFactory, FromArgMatches};

/// Command, then its examples: the command line, and its purpose.
pub type Examples = &'static [(&'static str, &'static [[&'static str; 2]])];

/// The command line of a program with its examples.
pub fn command<C: CommandFactory>(examples: Examples) -> Command {
    examples.iter().fold(C::command(), |command, (path, examples)| {
        let words: Vec<&str> = path.split(' ').collect();
        with(command, &words, &text(examples))
    })
}

/// Parses arguments as `command` says; prints help and usage errors and ends the process then.
pub fn parse<C: CommandFactory + FromArgMatches>(
    command: Command,
    arguments: impl IntoIterator<Item = OsString>,
) -> C {
    let mut matches = command.get_matches_from(arguments);
    let parsed = C::from_arg_matches_mut(&mut matches);
    parsed.unwrap_or_else(|err| err.format(&mut C::command()).exit())
}

fn with(command: Command, path: &[&str], text: &str) -> Command {
    match path {
        [] => command.after_long_help(text.to_owned()),
        // Another system has fewer commands.
        [name, ..] if command.find_subcommand(name).is_none() => command,
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
    leaves(&command::<C>(examples), "", &mut found);
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

/// For tests: panics unless every command line of `program` in the documents below `root` can be
/// parsed. In running text a command may lack arguments.
pub fn check_documents<C: CommandFactory>(root: &std::path::Path, program: &str) {
    use clap::error::ErrorKind;
    let (mut count, mut bad) = (0, Vec::new());
    for path in documents(root) {
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|err| panic!("{}: {err}", path.display()));
        let mut fenced = false;
        for (number, line) in text.lines().enumerate() {
            fenced ^= line.trim_start().starts_with("```");
            // A quoted message has backquotes of its own.
            let text = if line.starts_with("**`") { "" } else { line };
            let spans = text.split('`').skip(1).step_by(2);
            let pieces: Vec<&str> = if fenced { vec![line] } else { spans.collect() };
            for words in pieces.into_iter().flat_map(command_lines) {
                let is_placeholder = |word: &String| word.chars().all(|c| c.is_ascii_uppercase());
                // What a shell would put in place of a variable is not known.
                if words.first().is_none_or(|word| word != program)
                    || words.get(1).is_some_and(is_placeholder)
                    || words.iter().any(|word| word.contains('$'))
                {
                    continue;
                }
                count += 1;
                let Err(err) = C::command().try_get_matches_from(&words) else { continue };
                let partial = err.kind() == ErrorKind::MissingRequiredArgument
                    || err.to_string().contains("a value is required");
                let helps = [
                    ErrorKind::DisplayHelp,
                    ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
                    ErrorKind::MissingSubcommand,
                ];
                let is_fine = helps.contains(&err.kind()) || !fenced && partial;
                if !is_fine {
                    let text = err.to_string();
                    let line = text.lines().next().unwrap_or_default().to_owned();
                    bad.push(format!("{}:{}: {words:?}: {line}", path.display(), number + 1));
                }
            }
        }
    }
    assert!(bad.is_empty(), "{bad:#?}");
    assert!(count > 50, "only {count} command lines of {program} were found");
}

/// README and everything in `docs`.
fn documents(root: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = vec![root.join("README.md")];
    let mut left = vec![root.join("docs")];
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(&dir)
            .unwrap_or_else(|err| panic!("{}: {err}", dir.display()))
            .flatten()
        {
            let path = entry.path();
            if path.is_dir() {
                left.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                found.push(path);
            }
        }
    }
    found
}

/// The commands of a line of a shell, as words, without a prompt, comments and redirections.
fn command_lines(line: &str) -> Vec<Vec<String>> {
    let (mut commands, mut words) = (Vec::new(), Vec::<String>::new());
    let (mut word, mut quote) = (None::<String>, None);
    for letter in line.trim_start_matches("$ ").chars().chain([';']) {
        match (letter, quote) {
            (_, Some(open)) if letter == open => quote = None,
            ('\'' | '"', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (_, Some(_)) => word.get_or_insert_default().push(letter),
            ('(', None) => quote = Some(')'),
            ('#', None) if word.is_none() => break,
            (' ', None) => words.extend(word.take()),
            (';' | '|' | '&' | '<' | '>', None) => {
                words.extend(word.take());
                commands.push(std::mem::take(&mut words));
            }
            _ => word.get_or_insert_default().push(letter),
        }
    }
    commands.push(words);
    commands
}
