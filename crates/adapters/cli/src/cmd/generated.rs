//! Completions and man pages, which the build script made.

use std::ffi::OsStr;

use clap::{Arg, Command, CommandFactory};
use syncline_fs::FileKind;
use syncline_image::{Image, Opening, Place};

use crate::args::Cli;
use crate::contain::Bounds;
use crate::generated::Pages;
#[cfg(target_os = "linux")]
use crate::mount_options;

include!(concat!(env!("OUT_DIR"), "/generated.rs"));

/// Those of this program. The options of a mount are in tables that the build script does not have.
pub(crate) const PAGES: Pages = Pages {
    program: "syncline",
    texts: TEXTS,
    completions: COMPLETIONS,
    pages: MAN_PAGES,
    #[cfg(target_os = "linux")]
    more: |name| (name == "mount").then(mount_options::man),
    #[cfg(not(target_os = "linux"))]
    more: |_| None,
};

/// Values of the arguments, for `complete`.
pub(crate) fn values(command: &Command, arg: &Arg, tail: &str) -> Vec<String> {
    let name = arg.get_value_names().and_then(|names| names.first()).map_or("", |name| name);
    match (command.get_name(), name) {
        #[cfg(target_os = "linux")]
        ("mount" | "serve", "OPTIONS") => mount_options::values(tail),
        ("man", "COMMAND") => {
            Cli::command().get_subcommands().map(|sub| sub.get_name().to_owned()).collect()
        }
        ("cp" | "export", _) => files(tail),
        _ if name.starts_with("IMAGE:/") => files(tail),
        _ => Vec::new(),
    }
}

/// Files of the directory of an image that `IMAGE:/path` is in. None where it cannot be read.
fn files(tail: &str) -> Vec<String> {
    let Some(place) = Place::split(OsStr::new(tail)) else {
        let is_image = std::fs::metadata(tail).is_ok_and(|found| found.is_file());
        return is_image.then(|| format!("{tail}:/")).into_iter().collect();
    };
    let dir = place.path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let opened = Bounds::reader(&place.image).when_opened();
    let Ok(image) = Image::read(&place.image, &Opening { opened, ..Opening::default() }) else {
        return Vec::new();
    };
    let mut listed = Vec::new();
    let read = image.vol.resolve(place.path.get(..dir).unwrap_or_default()).and_then(|inode| {
        image.vol.readdir(&inode, 0, &mut |entry| {
            listed.push((entry.name.to_vec(), entry.kind == FileKind::Directory));
            true
        })
    });
    let head = tail.get(..tail.len() - (place.path.len() - dir)).unwrap_or(tail);
    let named = |(name, is_dir): (Vec<u8>, bool)| {
        let name = String::from_utf8(name).ok().filter(|name| name != "." && name != "..")?;
        Some(format!("{head}{name}{}", if is_dir { "/" } else { "" }))
    };
    match read {
        Ok(_) => listed.into_iter().filter_map(named).collect(),
        Err(_) => Vec::new(),
    }
}
