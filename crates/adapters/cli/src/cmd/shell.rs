//! `shell`: commands on the files of one image, from a terminal, a script or `-c`.
//!
//! ```text
//!   line -> words -> parsed as a command of this program, with paths of the image
//!                 -> run on the volume, which stays open; a change is synced at once
//! ```
//!
//! Promises: the image is only read without -w. The process gives up its rights before it reads the
//! image: `get` and `put` reach the current directory and what is below it. A script ends at the
//! first command that fails, a terminal goes on, with Tab and the lines before (`shell_line.rs`).
//!
//! This file is long because it has every command, each a few lines. Tested in `tests/it/shell.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::path::PathBuf;
use std::process::{Command as Process, Stdio};

use clap::Parser;
use syncline_fs::{InodeRef, RenameFlags, Volume};
use syncline_image::copy::{Options, contents, copy_open};
use syncline_image::names::{Removal, join, make_directory, remove, rename};
use syncline_image::stoppable::Stoppable;
use syncline_image::{Image, Opening};

use super::{cat, cp, ls, mkdir, stat};
use crate::args::{Cli, Command, Cp, Shell as Args};
use crate::contain::Bounds;
use crate::error::{Failure, Result};
use crate::format::{self, Out};
use crate::image::{self, Place, Standard};
use crate::interrupt;

/// Names of commands.
#[cfg(unix)]
const COMMANDS: &str = "cat cd du edit exit find get help less ls mkdir mv put pwd quit rm stat";

const HELP: &str = "\
ls [-laihRd] [PATH...]   cd [DIR]              pwd\n\
cat PATH...              less PATH             stat [--extents] PATH...\n\
edit PATH                in $VISUAL, $EDITOR or vi\n\
du [PATH...]             find [PATH] [-name GLOB]\n\
get [-ra] PATH... DIR    out of the image; one PATH alone: into the current one\n\
put [-ra] FILE... PATH   into the image; one FILE alone: into the one of `cd`\n\
mkdir [-p] PATH...       mv [-n] FROM TO       rm [-rf] PATH...\n\
help                     exit\n";

/// Runs the commands of `-c`, else those of standard input.
pub(crate) fn run(args: &Args) -> Result<()> {
    let is_terminal = args.command.is_empty() && io::stdin().is_terminal();
    let here = PathBuf::from(".");
    let bounds = match args.write {
        true => Bounds::writer(&args.image),
        false => Bounds::reader(&args.image),
    };
    let mut bounds = Bounds { starts: bounds.starts || is_terminal, ..bounds };
    bounds.fills.push(here);
    let how = Opening { rescue: image::rescue(args.rescued), ..image::opening(&args.part, bounds) };
    let opened = match args.write {
        true => Image::write(&args.image, &how)?,
        false => image::read(&args.image, &how)?,
    };
    let mut shell = Shell {
        image: args.image.clone(),
        images: BTreeMap::from([(args.image.clone(), opened)]),
        dir: b"/".to_vec(),
        write: args.write,
        is_terminal,
    };
    let done = match args.command.is_empty() {
        true => shell.read(),
        false => args.command.iter().try_for_each(|line| shell.line(line).map(drop)),
    };
    shell.images.into_values().fold(done, |done, image| image.close(done))
}

struct Shell {
    image: PathBuf,
    /// The image alone, as copies take it.
    images: BTreeMap<PathBuf, Image>,
    /// Current directory in the image.
    dir: Vec<u8>,
    write: bool,
    is_terminal: bool,
}

impl Shell {
    /// Runs the lines of standard input.
    fn read(&mut self) -> Result<()> {
        let host = |err: &io::Error| Failure::host("standard input".as_ref(), err);
        let input = Stoppable::standard_input(interrupt::asked).map_err(|err| host(&err))?;
        let mut input = BufReader::new(input);
        #[cfg(unix)]
        if self.is_terminal && io::stdout().is_terminal() {
            return self.typed(&mut input);
        }
        loop {
            if self.is_terminal {
                let mut out = Out::new();
                out.text(format!("{}:", self.image.display()))?;
                out.bytes(&format::name(&self.dir))?;
                out.text("> ")?;
                out.flush()?;
            }
            let mut line = String::new();
            let done = match input.read_line(&mut line) {
                Ok(0) => return Ok(()),
                Ok(_) => self.line(&line),
                Err(err) => Err(host(&err)),
            };
            if !self.goes_on(done)? {
                return Ok(());
            }
        }
    }

    /// True if another line is read after one that ended so.
    fn goes_on(&self, done: Result<bool>) -> Result<bool> {
        match done {
            Ok(more) => return Ok(more),
            Err(Failure::PipeClosed) => {}
            Err(Failure::Interrupted) if self.is_terminal => {
                interrupt::forget();
                println!();
            }
            Err(failure) if self.is_terminal => {
                failure.message().into_iter().for_each(crate::complain);
            }
            Err(failure) => return Err(failure),
        }
        Ok(true)
    }

    /// Runs lines that are typed.
    #[cfg(unix)]
    fn typed(&mut self, input: &mut dyn io::Read) -> Result<()> {
        use super::shell_line::{Typed, read};

        let mut history = Vec::new();
        loop {
            let dir = String::from_utf8_lossy(&format::name(&self.dir)).into_owned();
            let prompt = format!("{}:{dir}> ", format::line(&self.image.display().to_string()));
            let typed = read(input, &prompt, &history, &|line| self.candidates(line));
            let host = |err: &io::Error| Failure::host("the terminal".as_ref(), err);
            match typed.map_err(|err| host(&err))? {
                Typed::End => return Ok(()),
                Typed::Cancelled => {}
                Typed::Line(line) => {
                    let done = self.line(&line);
                    if !line.trim().is_empty() && history.last() != Some(&line) {
                        history.push(line);
                    }
                    if !self.goes_on(done)? {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Where the last word of a line begins, and what may stand there.
    #[cfg(unix)]
    fn candidates(&self, line: &str) -> (usize, Vec<String>) {
        let (mut start, mut escaped, mut words) = (0, false, 0);
        for (at, letter) in line.char_indices() {
            match letter {
                _ if std::mem::take(&mut escaped) => {}
                '\\' => escaped = true,
                ' ' | ';' => {
                    words = if letter == ';' { 0 } else { words + usize::from(at > start) };
                    start = at + 1;
                }
                _ => {}
            }
        }
        let word = line.get(start..).unwrap_or_default();
        if words == 0 {
            let names = COMMANDS.split(' ').filter(|name| name.starts_with(word));
            return (start, names.map(str::to_owned).collect());
        }
        // A quote has no candidates.
        let typed = match split(word).as_deref() {
            Ok([words]) if words.len() < 2 => words.concat(),
            _ => return (start, Vec::new()),
        };
        let (dir, begin) = typed.split_at(typed.rfind('/').map_or(0, |slash| slash + 1));
        let is_put = line.trim_start().starts_with("put ");
        let mut names = self.names(dir).unwrap_or_default();
        if is_put {
            names.extend(local(dir));
        }
        names.retain(|name| name.starts_with(begin) && !name.contains(char::is_control));
        names.sort();
        names.dedup();
        (start, names.iter().map(|name| quoted(&format!("{dir}{name}"))).collect())
    }

    /// Names of a directory, with `/` behind those of directories.
    #[cfg(unix)]
    fn names(&self, dir: &str) -> Result<Vec<String>> {
        let place = self.place(if dir.is_empty() { "." } else { dir });
        let vol = self.volume()?;
        let inode = vol.resolve(&place.path)?;
        let mut found = Vec::new();
        vol.readdir(&inode, 0, &mut |entry| {
            if let Ok(name) = std::str::from_utf8(entry.name) {
                found.push((name.to_owned(), entry.ino));
            }
            true
        })?;
        found.retain(|(name, _)| name != "." && name != "..");
        let slash = |ino| vol.iget(ino).is_ok_and(|inode| inode.is_dir());
        let ended = |(name, ino)| if slash(ino) { format!("{name}/") } else { name };
        Ok(found.into_iter().map(ended).collect())
    }

    /// Runs the commands of a line; false: the end was asked for.
    fn line(&mut self, line: &str) -> Result<bool> {
        for words in split(line)? {
            let Some((name, rest)) = words.split_first() else { continue };
            if matches!(name.as_str(), "exit" | "quit") {
                return Ok(false);
            }
            interrupt::check()?;
            self.command(name, rest)?;
        }
        Ok(true)
    }

    fn volume(&self) -> Result<&Volume> {
        let image = self.images.get(&self.image).map(|image| &image.vol);
        image.ok_or_else(|| Failure::Failed("the image is closed; start again".to_owned()))
    }

    /// An absolute path of the image, without `.` and `..`.
    fn place(&self, word: impl AsRef<std::ffi::OsStr>) -> Place {
        let word = word.as_ref().as_encoded_bytes();
        let start = if word.starts_with(b"/") { &b""[..] } else { &self.dir };
        let mut parts: Vec<&[u8]> = Vec::new();
        for part in start.split(|byte| *byte == b'/').chain(word.split(|byte| *byte == b'/')) {
            match part {
                b"" | b"." => {}
                b".." => drop(parts.pop()),
                part => parts.push(part),
            }
        }
        let path = [b"/", parts.join(&b'/').as_slice()].concat();
        Place { image: self.image.clone(), path }
    }

    fn command(&mut self, name: &str, rest: &[String]) -> Result<()> {
        let usage = |text: &str| Err(Failure::Usage(text.to_owned()));
        match (name, rest) {
            ("cd", [] | [_]) => return self.cd(rest.first().map_or("/", String::as_str)),
            ("pwd", []) => {
                let mut out = Out::new();
                out.bytes(&format::name(&self.dir))?;
                out.text("\n")?;
                return out.flush();
            }
            ("less", [word]) => return self.less(&self.place(word)),
            ("edit", [word]) => return self.edit(&self.place(word)),
            ("du", _) => return self.du(rest),
            ("find", _) => return self.find(rest),
            ("help", _) => {
                let mut out = Out::new();
                out.text(HELP)?;
                return out.flush();
            }
            ("ls" | "cat" | "stat" | "mkdir" | "rm" | "mv" | "get" | "put", _) => {}
            ("cd" | "pwd" | "less" | "edit", _) => {
                return usage("too few or too many arguments; see `help`");
            }
            _ => return usage(&format!("there is no command `{name}`; `help` lists them")),
        }
        let same = if matches!(name, "get" | "put") { "cp" } else { name };
        let here = (name == "ls" && rest.iter().all(|word| word.starts_with('-'))).then_some(".");
        let words = ["syncline", same].into_iter().chain(rest.iter().map(String::as_str));
        let parsed = match Cli::try_parse_from(words.chain(here)) {
            Ok(cli) => cli.command,
            Err(err) if !err.use_stderr() => {
                print!("{err}");
                return Ok(());
            }
            Err(err) => {
                let text = err.to_string();
                let first = text.lines().next().unwrap_or_default();
                let first = first.trim_start_matches("error: ").trim_end_matches(':');
                return usage(&format!("{name}: {first}; see `help`"));
            }
        };
        let writes = matches!(name, "mkdir" | "rm" | "mv" | "put");
        if writes && !self.write {
            return usage(&format!("{name}: the image is open for reading; start with -w"));
        }
        parsed.map_or(Ok(()), |command| self.run(name, command))?;
        if writes { Ok(self.volume()?.sync()?) } else { Ok(()) }
    }

    fn run(&mut self, name: &str, command: Command) -> Result<()> {
        let vol = self.volume()?;
        let mut out = Out::new();
        match command {
            Command::Ls(args) => {
                let places: Vec<Place> = args.paths.iter().map(|word| self.place(word)).collect();
                ls::list(&args, vol, &places, &mut out)?;
            }
            Command::Cat(args) => {
                self.each(&args.paths, |place| cat::print(vol, place, &mut out))?
            }
            Command::Stat(args) => {
                self.each(&args.paths, |place| stat::show(vol, place, args.extents, &mut out))?
            }
            Command::Mkdir(args) => {
                let create = mkdir::create(&args)?;
                self.each(&args.paths, |place| {
                    Ok(make_directory(vol, &place.path, &create, args.parents)?)
                })?;
            }
            Command::Rm(args) => {
                let (how, watch) = (
                    Removal { recursive: args.recursive, force: args.force },
                    Standard::new("removed"),
                );
                self.each(&args.paths, |place| Ok(remove(vol, &place.path, how, &watch)?))?;
            }
            Command::Mv(args) => {
                let (from, to) = (self.place(&args.from), self.place(&args.to));
                let keep = args.no_clobber;
                let flags = if keep { RenameFlags::NOREPLACE } else { RenameFlags::NONE };
                let done = rename(vol, &from.path, &to.path, flags);
                done.map_err(|err| err.at(from.shown()))?;
            }
            Command::Cp(args) => self.copy(name == "put", args)?,
            _ => {}
        }
        out.flush()
    }

    fn each(&self, words: &[OsString], mut each: impl FnMut(&Place) -> Result<()>) -> Result<()> {
        words.iter().try_for_each(|word| {
            let place = self.place(word);
            interrupt::check().and_then(|()| each(&place)).map_err(|err| err.at(place.shown()))
        })
    }

    /// `put` and `get`.
    fn copy(&self, put: bool, mut args: Cp) -> Result<()> {
        let target = match args.paths.len() {
            1 => OsString::from("."),
            _ => args.paths.pop().unwrap_or_default(),
        };
        let inside = |word: &OsString| self.place(word).argument();
        let (sources, target) = match put {
            true => (args.paths.clone(), inside(&target)),
            false => (args.paths.iter().map(inside).collect(), target),
        };
        let options: Options = cp::options(&args);
        let watch = Standard::new("copied");
        cp::complete(copy_open(&sources, &target, &options, &self.images, &watch)?)
    }

    fn cd(&mut self, word: &str) -> Result<()> {
        let place = self.place(word);
        let inode = self.volume()?.resolve(&place.path);
        let inode = inode.map_err(|err| Failure::from(err).at(place.shown()))?;
        if !inode.is_dir() {
            let text = "is not a directory; list its directory with `ls`";
            return Err(Failure::Failed(text.to_owned()).at(place.shown()));
        }
        self.dir = place.path;
        Ok(())
    }

    /// The file in `$PAGER` on a terminal, else as `cat`.
    fn less(&self, place: &Place) -> Result<()> {
        let mut out = Out::new();
        if !self.is_terminal {
            cat::print(self.volume()?, place, &mut out).map_err(|err| err.at(place.shown()))?;
            return out.flush();
        }
        let bytes = self.volume()?.resolve(&place.path).map(|inode| (inode, vec![0; 1 << 20]));
        let (inode, mut chunk) = bytes.map_err(|err| Failure::from(err).at(place.shown()))?;
        let pager = std::env::var_os("PAGER").filter(|pager| !pager.is_empty());
        let mut command = Process::new("sh");
        command.arg("-c").arg(pager.unwrap_or("less".into())).stdin(Stdio::piped());
        let host = |err: &io::Error| Failure::host("the pager".as_ref(), err);
        let mut child = command.spawn().map_err(|err| host(&err))?;
        let mut pipe = child.stdin.take();
        let mut at = 0;
        let done = loop {
            match self.volume()?.read(&inode, at, &mut chunk) {
                Ok(0) => break Ok(()),
                Ok(len) => {
                    let part = chunk.get(..len).unwrap_or_default();
                    // A pager that was left wants no more.
                    if pipe.as_mut().is_none_or(|pipe| pipe.write_all(part).is_err()) {
                        break Ok(());
                    }
                    at += len as u64;
                }
                Err(err) => break Err(Failure::from(err).at(place.shown())),
            }
        };
        drop(pipe);
        child.wait().map_err(|err| host(&err))?;
        done
    }

    /// The file in an editor, and what it left back into the image, if that is another text.
    fn edit(&self, place: &Place) -> Result<()> {
        let usage = |text: &str| Err(Failure::Usage(text.to_owned()));
        if !self.write {
            return usage("edit: the image is open for reading; start with -w");
        }
        if !self.is_terminal {
            return usage("edit: needs a terminal; use `get` and `put`");
        }
        let vol = self.volume()?;
        let at = |err: syncline_fs::FsError| Failure::from(err).at(place.shown());
        let host = |err: io::Error| Failure::host("the editor's copy".as_ref(), &err);
        let mut before = Vec::new();
        match vol.resolve(&place.path) {
            Err(syncline_fs::FsError::NotFound) => {}
            found => contents(vol, &found.map_err(at)?, &place.shown(), &mut |read| {
                before.extend_from_slice(read);
                interrupt::check()
            })?,
        }
        // A directory, since editors put other files beside; the name tells them what it is.
        let dir = tempfile::Builder::new().prefix(".edit-").tempdir_in(".").map_err(host)?;
        let name = place.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let copy = dir.path().join(String::from_utf8_lossy(name).as_ref());
        std::fs::write(&copy, &before).map_err(host)?;
        let chosen = ["VISUAL", "EDITOR"].into_iter().filter_map(std::env::var_os);
        let mut editor = chosen.into_iter().find(|one| !one.is_empty()).unwrap_or("vi".into());
        editor.push(" \"$1\"");
        let ran = Process::new("sh").arg("-c").arg(editor).arg("sh").arg(&copy).status();
        if !ran.map_err(host)?.success() {
            let text = "the editor failed, and the file is as it was; set EDITOR to another";
            return Err(Failure::Failed(text.to_owned()).at(place.shown()));
        }
        if std::fs::read(&copy).map_err(host)? == before {
            return Ok(());
        }
        let (copy, options) = ([copy.into_os_string()], Options::default());
        let watch = Standard::new("copied");
        cp::complete(copy_open(&copy, &place.argument(), &options, &self.images, &watch)?)?;
        Ok(vol.sync()?)
    }

    /// Calls `each` with everything below a path, itself first.
    fn walk(
        &self,
        start: &Place,
        each: &mut dyn FnMut(&[u8], &InodeRef) -> Result<()>,
    ) -> Result<()> {
        let vol = self.volume()?;
        let at = |err: syncline_fs::FsError| Failure::from(err).at(start.shown());
        let mut left = vec![(start.path.clone(), vol.resolve_nofollow(&start.path).map_err(at)?)];
        // An image whose directories form a circle must not make this go round.
        let mut entered = BTreeSet::new();
        while let Some((path, inode)) = left.pop() {
            interrupt::check()?;
            each(&path, &inode)?;
            if !inode.is_dir() || !entered.insert(inode.ino) {
                continue;
            }
            let mut names = Vec::new();
            let mut take = |name: &[u8], ino| names.push((name.to_vec(), ino));
            vol.readdir(&inode, 0, &mut |entry| {
                take(entry.name, entry.ino);
                true
            })
            .map_err(at)?;
            names.retain(|(name, _)| name != b"." && name != b"..");
            names.sort();
            for (name, ino) in names.into_iter().rev() {
                left.push((join(&path, &name), vol.iget(ino).map_err(at)?));
            }
        }
        Ok(())
    }

    /// Space used below each path; a file with several names counts once.
    fn du(&self, words: &[String]) -> Result<()> {
        let here = [".".to_owned()];
        let mut out = Out::new();
        for word in if words.is_empty() { &here[..] } else { words } {
            let place = self.place(word);
            let (mut seen, mut bytes) = (BTreeSet::new(), 0_u64);
            let vol = self.volume()?;
            self.walk(&place, &mut |_, inode| {
                if seen.insert(inode.ino) {
                    bytes = bytes.saturating_add(vol.getattr(inode).blocks.saturating_mul(512));
                }
                Ok(())
            })?;
            out.text(format!("{}\t", format::size(bytes)))?;
            out.bytes(&format::name(&place.path))?;
            out.text("\n")?;
        }
        out.flush()
    }

    /// Paths below a path, of names that fit.
    fn find(&self, words: &[String]) -> Result<()> {
        let (start, glob) = match words {
            [] => (".", None),
            [option, glob] if option == "-name" => (".", Some(glob)),
            [start] => (start.as_str(), None),
            [start, option, glob] if option == "-name" => (start.as_str(), Some(glob)),
            _ => {
                let text = "find: give a path, -name GLOB, or both; see `help`";
                return Err(Failure::Usage(text.to_owned()));
            }
        };
        let glob = glob.map(|glob| glob::Pattern::new(glob)).transpose();
        let glob = glob.map_err(|err| Failure::Usage(format!("find: {err}; correct the glob")))?;
        let mut out = Out::new();
        self.walk(&self.place(start), &mut |path, _| {
            let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
            let name = String::from_utf8_lossy(name);
            if glob.as_ref().is_none_or(|glob| glob.matches(&name)) {
                out.bytes(&format::name(path))?;
                out.text("\n")?;
            }
            Ok(())
        })?;
        out.flush()
    }
}

/// Names of a directory of this machine, for `put`.
#[cfg(unix)]
fn local(dir: &str) -> Vec<String> {
    let entries = std::fs::read_dir(if dir.is_empty() { "." } else { dir });
    let name = |entry: std::fs::DirEntry| {
        let slash = if entry.file_type().is_ok_and(|kind| kind.is_dir()) { "/" } else { "" };
        Some(format!("{}{slash}", entry.file_name().to_str()?))
    };
    entries.into_iter().flatten().flatten().filter_map(name).collect()
}

/// A word as it is typed.
#[cfg(unix)]
fn quoted(word: &str) -> String {
    let mut typed = String::new();
    for letter in word.chars() {
        if " \t\\'\"#;|<>&".contains(letter) {
            typed.push('\\');
        }
        typed.push(letter);
    }
    typed
}

/// The commands of a line, as words: `;` is between them, `#` begins a comment, and quotes and `\`
/// are those of a shell.
fn split(line: &str) -> Result<Vec<Vec<String>>> {
    let usage = |text: &str| Err(Failure::Usage(text.to_owned()));
    let (mut commands, mut words) = (Vec::new(), Vec::new());
    let (mut word, mut quote) = (None::<String>, None);
    let mut letters = line.trim_end_matches(['\n', '\r']).chars();
    while let Some(letter) = letters.next() {
        match (letter, quote) {
            (_, Some(open)) if letter == open => quote = None,
            ('\\', None | Some('"')) => match letters.next() {
                Some(next) => word.get_or_insert_default().push(next),
                None => return usage("a `\\` at the end of the line; write it twice"),
            },
            (_, Some(_)) => word.get_or_insert_default().push(letter),
            ('\'' | '"', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            ('#', None) if word.is_none() => break,
            (' ' | '\t', None) => words.extend(word.take()),
            (';', None) => {
                words.extend(word.take());
                commands.push(std::mem::take(&mut words));
            }
            ('|' | '<' | '>' | '&', None) => {
                return usage("no pipes and redirections here; quote the letter, or use `get`");
            }
            _ => word.get_or_insert_default().push(letter),
        }
    }
    if quote.is_some() {
        return usage("a quote without its end; close it");
    }
    words.extend(word);
    commands.push(words);
    Ok(commands)
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn lines_are_words_as_in_a_shell() {
        let words = |line| split(line).unwrap();
        assert_eq!(words("ls -l  /a # b\n"), [["ls", "-l", "/a"]]);
        assert_eq!(words(r#"cat 'a b' "c \" d" e\ f"#), [["cat", "a b", "c \" d", "e f"]]);
        assert_eq!(words("cd /; ls a#b"), [vec!["cd", "/"], vec!["ls", "a#b"]]);
        assert_eq!(words("# all"), [[""; 0]]);
        for bad in ["cat a | b", "cat 'a", "cat a > b", "a \\"] {
            assert!(split(bad).is_err(), "{bad}");
        }
    }
}
