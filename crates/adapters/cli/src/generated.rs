//! `completions` and `man`: the texts that the build script made.

use std::io::Read;
use std::ops::Range;
use std::path::Path;

use flate2::read::DeflateDecoder;

use crate::error::{Failure, Result};
use crate::format::{self, Out};

/// Places of texts by name.
type Places = &'static [(&'static str, Range<usize>)];

/// Completions and man pages of a program.
pub struct Pages {
    /// The program.
    pub program: &'static str,
    /// All texts, compressed as one.
    pub texts: &'static [u8],
    /// Completion scripts by shell.
    pub completions: Places,
    /// Man pages by command; that of the program has no name.
    pub pages: Places,
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
        print(&self.text(script)?)
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

    fn complete(&self, name: &str, page: &Range<usize>) -> Result<Vec<u8>> {
        let mut page = self.text(page)?;
        page.extend((self.more)(name).unwrap_or_default().into_bytes());
        Ok(page)
    }

    /// One text of what the build script compressed.
    fn text(&self, place: &Range<usize>) -> Result<Vec<u8>> {
        let (mut all, mut why) = (Vec::new(), "it ends early".to_owned());
        if let Err(err) = DeflateDecoder::new(self.texts).read_to_end(&mut all) {
            why = err.to_string();
        }
        let text = all.get(place.clone()).map(<[u8]>::to_vec);
        text.ok_or_else(|| {
            Failure::Failed(format!("this program is damaged ({why}); install it again"))
        })
    }
}

fn print(text: &[u8]) -> Result<()> {
    let mut out = Out::new();
    out.bytes(text)?;
    out.flush()
}
