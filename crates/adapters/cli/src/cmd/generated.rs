//! `completions` and `man`: what the build script made.

use std::io::Read;
use std::path::Path;

use flate2::read::DeflateDecoder;

use crate::args::{Completions, Man};
use crate::error::{Failure, Result};
use crate::format::{self, Out};
use crate::mount_options;

include!(concat!(env!("OUT_DIR"), "/generated.rs"));

/// Prints a completion script.
pub(crate) fn completions(args: &Completions) -> Result<()> {
    let found = COMPLETIONS.iter().find(|(shell, _)| *shell == args.shell);
    let (_, script) = found.ok_or_else(|| {
        Failure::Usage(format!("no completions for `{}`; see --help", args.shell))
    })?;
    print(&inflated(script)?)
}

/// Prints a man page, or writes all of them.
pub(crate) fn man(args: &Man) -> Result<()> {
    if let Some(dir) = &args.all {
        std::fs::create_dir_all(dir).map_err(|err| Failure::host(dir, &err))?;
        return PAGES.iter().try_for_each(|(name, page)| write(dir, name, &complete(name, page)?));
    }
    let name = args.command.as_deref().unwrap_or("");
    let found = PAGES.iter().find(|(page, _)| *page == name);
    let (_, page) = found
        .ok_or_else(|| Failure::Usage(format!("no command `{name}`; see `syncline --help`")))?;
    print(&complete(name, page)?)
}

/// A page with what the build script could not know: the options of a mount.
fn complete(name: &str, page: &[u8]) -> Result<Vec<u8>> {
    let mut page = inflated(page)?;
    if name == "mount" {
        page.extend(mount_options::man().into_bytes());
    }
    Ok(page)
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

fn write(dir: &Path, name: &str, page: &[u8]) -> Result<()> {
    let file = if name.is_empty() { "syncline.1".into() } else { format!("syncline-{name}.1") };
    let path = dir.join(file);
    format::write_file(&path, page)
}
