//! `completions` and `man`: the texts that the build script made.

use std::io::Read;
use std::path::Path;

use flate2::read::DeflateDecoder;

use crate::error::{Failure, Result};
use crate::format::{self, Out};

/// Texts by name, compressed.
type Texts = &'static [(&'static str, &'static [u8])];

/// Completions and man pages of a program.
pub struct Pages {
    /// The program.
    pub program: &'static str,
    /// Completion scripts by shell.
    pub completions: Texts,
    /// Man pages by command; that of the program has no name.
    pub pages: Texts,
    /// Sections of a command's page that the build script could not make.
    pub more: fn(&str) -> Option<String>,
}

impl Pages {
    /// Prints a completion script.
    ///
    /// # Errors
    /// Usage: there is none for the shell.
    pub fn completions(&self, shell: &str) -> Result<()> {
        let found = self.completions.iter().find(|(name, _)| *name == shell);
        let (_, script) = found
            .ok_or_else(|| Failure::Usage(format!("no completions for `{shell}`; see --help")))?;
        print(&inflated(script)?)
    }

    /// Prints the page of a command or of the program; with `all` writes all pages into that
    /// directory.
    ///
    /// # Errors
    /// Usage: there is no such command. Else the directory cannot be written.
    pub fn man(&self, command: Option<&str>, all: Option<&Path>) -> Result<()> {
        if let Some(dir) = all {
            std::fs::create_dir_all(dir).map_err(|err| Failure::host(dir, &err))?;
            return self.pages.iter().try_for_each(|(name, page)| {
                let dash = if name.is_empty() { "" } else { "-" };
                let path = dir.join(format!("{}{dash}{name}.1", self.program));
                format::write_file(&path, &self.complete(name, page)?)
            });
        }
        let name = command.unwrap_or("");
        let found = self.pages.iter().find(|(page, _)| *page == name);
        let (_, page) = found.ok_or_else(|| {
            Failure::Usage(format!("no command `{name}`; see `{} --help`", self.program))
        })?;
        print(&self.complete(name, page)?)
    }

    fn complete(&self, name: &str, page: &[u8]) -> Result<Vec<u8>> {
        let mut page = inflated(page)?;
        page.extend((self.more)(name).unwrap_or_default().into_bytes());
        Ok(page)
    }
}

/// The text of what the build script compressed.
fn inflated(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    DeflateDecoder::new(bytes).read_to_end(&mut text).map_err(|err| {
        Failure::Failed(format!("this program is damaged ({err}); install it again"))
    })?;
    Ok(text)
}

fn print(text: &[u8]) -> Result<()> {
    let mut out = Out::new();
    out.bytes(text)?;
    out.flush()
}
