//! Completion of a command line in a shell.
//!
//! The scripts of `completions` call `complete WORD...` at each Tab, with the words behind the
//! program's name up to the cursor. It prints a candidate for the last word on each line: commands,
//! options, values of options, and files in images. Without any the shell offers files.
//!
//! Assumes: a script quotes what it inserts. Names with control characters are left out. Tested
//! here, and with the shells in `tests/it/generated.rs`.

use std::ffi::OsString;

use clap::{Arg, Command};

use crate::error::Result;
use crate::format::Out;

/// Values of an argument that clap does not know, each with all that stands before it in the word.
pub type Values<'a> = &'a dyn Fn(&Command, &Arg, &str) -> Vec<String>;

/// Prints the candidates.
///
/// # Errors
/// Standard output cannot be written.
pub fn run(command: Command, words: &[OsString], values: Values<'_>) -> Result<()> {
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut out = Out::new();
    for candidate in candidates(command, &words, values) {
        if !candidate.contains(char::is_control) {
            out.text(format!("{candidate}\n"))?;
        }
    }
    out.flush()
}

/// Candidates for the last word.
fn candidates(mut command: Command, words: &[String], values: Values<'_>) -> Vec<String> {
    command.build();
    let Some((word, before)) = words.split_last() else { return Vec::new() };
    let (mut at, mut positional, mut awaited, mut options) = (&command, 0, None, true);
    for word in before {
        if awaited.take().is_some() {
            continue;
        }
        match at.find_subcommand(word).filter(|_| positional == 0) {
            _ if options && word == "--" => options = false,
            _ if options && word.starts_with('-') && word != "-" => {
                awaited = option(at, word).filter(|(_, value)| value.is_none()).map(|(arg, _)| arg);
            }
            Some(sub) => at = sub,
            None => positional += 1,
        }
    }
    let of = |arg: &Arg, head: &str, tail: &str| value(at, arg, head, tail, values);
    if let Some(arg) = awaited {
        return of(arg, "", word);
    }
    if let Some((arg, Some(tail))) = option(at, word).filter(|_| options) {
        return of(arg, word.strip_suffix(tail).unwrap_or_default(), tail);
    }
    if options && word.starts_with('-') {
        let shown = at.get_arguments().filter(|arg| !arg.is_hide_set());
        let names = shown.filter_map(|arg| Some(format!("--{}", arg.get_long()?)));
        return names.filter(|name| name.starts_with(word.as_str())).collect();
    }
    let subs = at.get_subcommands().filter(|sub| positional == 0 && !sub.is_hide_set());
    let subs =
        subs.map(|sub| sub.get_name().to_owned()).filter(|sub| sub.starts_with(word.as_str()));
    let last = at.get_positionals().count().saturating_sub(1);
    let arg = at.get_positionals().nth(positional.min(last));
    subs.chain(arg.map(|arg| of(arg, "", word)).into_iter().flatten()).collect()
}

/// The option with a value that a word names, and the value if the word has it.
fn option<'c, 'w>(command: &'c Command, word: &'w str) -> Option<(&'c Arg, Option<&'w str>)> {
    let named = |fits: &dyn Fn(&Arg) -> bool| {
        command.get_arguments().find(|arg| arg.get_action().takes_values() && fits(arg))
    };
    if let Some(long) = word.strip_prefix("--") {
        let (name, value) = long.split_once('=').map_or((long, None), |(n, v)| (n, Some(v)));
        return Some((named(&|arg| arg.get_long() == Some(name))?, value));
    }
    // Of several letters the first that takes a value has the rest.
    word.strip_prefix('-')?.char_indices().find_map(|(at, letter)| {
        let arg = named(&|arg| arg.get_short() == Some(letter))?;
        let rest = word.get(1 + at + letter.len_utf8()..).filter(|rest| !rest.is_empty());
        Some((arg, rest))
    })
}

/// Values that begin with `tail`; `head` is what stands before it in the word.
fn value(command: &Command, arg: &Arg, head: &str, tail: &str, values: Values<'_>) -> Vec<String> {
    let is_list = arg.get_value_delimiter().is_some() || arg.get_id() == "options";
    let split = if is_list { tail.rfind(',').map_or(0, |comma| comma + 1) } else { 0 };
    let (listed, tail) = tail.split_at(split);
    let known = arg.get_possible_values();
    let known: Vec<String> = match known.is_empty() {
        true => values(command, arg, tail),
        false => known.iter().map(|value| value.get_name().to_owned()).collect(),
    };
    let fitting = known.into_iter().filter(|value| value.starts_with(tail));
    fitting.map(|value| format!("{head}{listed}{value}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(line: &str) -> Vec<String> {
        let deep = Command::new("deep").arg(
            Arg::new("mode").long("mode").short('m').value_delimiter(',').value_parser(["a", "bc"]),
        );
        let flag = Arg::new("flag").short('f').action(clap::ArgAction::SetTrue);
        let command = Command::new("p").arg(flag).subcommand(deep.arg(Arg::new("place")));
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        candidates(command, &words, &|_, arg, _| vec![format!("{}=", arg.get_id())])
    }

    #[test]
    fn the_last_word_is_completed() {
        for (line, expected) in [
            ("", &["deep", "help"][..]),
            ("de", &["deep"]),
            ("-f de", &["deep"]),
            ("deep --m", &["--mode"]),
            ("deep --mode ", &["a", "bc"]),
            ("deep --mode b", &["bc"]),
            ("deep --mode=b", &["--mode=bc"]),
            ("deep --mode=a,b", &["--mode=a,bc"]),
            ("deep -ma,", &["-ma,a", "-ma,bc"]),
            ("deep -m a pl", &["place="]),
            ("deep -- pl", &["place="]),
            ("deep other", &[]),
        ] {
            assert_eq!(completed(line), expected, "{line}");
        }
    }
}
