//! For build scripts: shell completions and man pages from a program's definition.
//!
//! They are put into `OUT_DIR` and from there, compressed, into the program, which prints them:
//! `completions SHELL`, `man [COMMAND]`. So they always fit the program, and a package needs
//! nothing else to install them.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap_complete::Shell;
use flate2::Compression;
use flate2::write::DeflateEncoder;

/// Scripts of shells that ask the program (`complete.rs`).
const DYNAMIC: [(&str, &str); 3] = [
    ("bash", include_str!("complete.bash")),
    ("fish", include_str!("complete.fish")),
    ("zsh", include_str!("complete.zsh")),
];

/// Writes `generated.rs` with the completions and pages of a program.
pub fn generate(command: &clap::Command) -> std::io::Result<()> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or(std::io::ErrorKind::NotFound)?);
    let mut command = command.clone();
    let program = command.get_name().to_owned();
    let mut table = Vec::new();
    writeln!(table, "const COMPLETIONS: &[(&str, &[u8])] = &[")?;
    for (shell, script) in DYNAMIC {
        let path = out.join(format!("{program}.{shell}"));
        let text =
            script.replace("@PROGRAM@", &program).replace("@ID@", &program.replace('-', "_"));
        let path = compressed(&path, text.as_bytes())?;
        writeln!(table, "    ({shell:?}, include_bytes!({path:?})),")?;
    }
    for shell in [Shell::Elvish, Shell::PowerShell] {
        let path = clap_complete::generate_to(shell, &mut command, &program, &out)?;
        let path = compressed(&path, &std::fs::read(&path)?)?;
        writeln!(table, "    ({:?}, include_bytes!({path:?})),", shell.to_string())?;
    }
    writeln!(table, "];\nconst MAN_PAGES: &[(&str, &[u8])] = &[")?;
    command.build();
    page(&command, &program, "", &out, &mut table)?;
    for sub in command.get_subcommands().filter(|sub| !is_hidden(sub)) {
        page(sub, &program, sub.get_name(), &out, &mut table)?;
    }
    writeln!(table, "];")?;
    std::fs::write(out.join("generated.rs"), table)
}

/// True for commands without a page.
fn is_hidden(command: &clap::Command) -> bool {
    command.get_name() == "help" || command.is_hide_set()
}

fn page(
    command: &clap::Command,
    program: &str,
    name: &str,
    out: &Path,
    table: &mut Vec<u8>,
) -> std::io::Result<()> {
    let title = if name.is_empty() { program.to_owned() } else { format!("{program}-{name}") };
    let path = out.join(format!("{title}.1"));
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone()).title(title.as_str()).render(&mut text)?;
    let path = compressed(&path, &text)?;
    writeln!(table, "    ({name:?}, include_bytes!({path:?})),")
}

/// Writes a file beside `path`; returns its path.
fn compressed(path: &Path, text: &[u8]) -> std::io::Result<PathBuf> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(text)?;
    let mut name = path.as_os_str().to_owned();
    name.push(".deflate");
    std::fs::write(&name, encoder.finish()?)?;
    Ok(name.into())
}
