//! The options of `mount -o` in help and man page, from the tables of volume and mount.

use clap::Command;
use syncline_fs::VOLUME_OPTIONS;
use syncline_fs::options::spec;
use syncline_fuse::MOUNT_OPTIONS;

/// Columns of a line of help.
const COLUMNS: usize = 100;

/// Ends `mount --help` with both tables, which are formatted when `mount` is asked for.
pub(crate) fn document(command: Command) -> Command {
    command.mut_subcommand("mount", |mount| {
        mount.defer(|mount| {
            let examples = mount.get_after_long_help().map(|text| text.to_string());
            mount.after_long_help(examples.unwrap_or_default() + &help())
        })
    })
}

fn help() -> String {
    let (volume, mount) = (spec::help(VOLUME_OPTIONS, COLUMNS), spec::help(MOUNT_OPTIONS, COLUMNS));
    format!("\n\nOptions (-o) of the volume:\n{volume}\nOptions (-o) of the mount:\n{mount}")
}

/// Both tables as sections of a man page.
pub(crate) fn man() -> String {
    let volume = spec::help(VOLUME_OPTIONS, COLUMNS);
    let mount = spec::help(MOUNT_OPTIONS, COLUMNS);
    format!(
        "{}{}",
        section("OPTIONS OF THE VOLUME", &volume),
        section("OPTIONS OF THE MOUNT", &mount)
    )
}

/// Candidates for an option that begins with `tail`.
pub(crate) fn values(tail: &str) -> Vec<String> {
    let mut found = Vec::new();
    // The mount has its own `log`.
    let of_mount = |name: &str| MOUNT_OPTIONS.iter().any(|row| row.name == name);
    let of_volume = VOLUME_OPTIONS.iter().filter(|row| !of_mount(row.name));
    of_volume.for_each(|row| found.extend(row.candidates(tail)));
    MOUNT_OPTIONS.iter().for_each(|row| found.extend(row.candidates(tail)));
    found
}

/// Lines of help as roff: a line that is indented by two is an option, the others are its text.
fn section(title: &str, help: &str) -> String {
    let mut out = format!(".SH \"{title}\"\n");
    for line in help.lines() {
        let text = line.trim_start().replace('\\', "\\\\").replace('-', "\\-");
        if line.starts_with("   ") {
            out.push_str(&format!("\\&{text}\n"));
        } else {
            out.push_str(&format!(".TP\n\\fB{text}\\fR\n"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_in_help_and_man_page() {
        let (help, man) = (help(), man());
        let names = VOLUME_OPTIONS.iter().map(|row| row.usage());
        for usage in names.chain(MOUNT_OPTIONS.iter().map(|row| row.usage())) {
            assert!(help.contains(&format!("\n  {usage}\n")), "{usage}");
            let roff = usage.replace('-', "\\-");
            assert!(man.contains(&format!("\\fB{roff}\\fR\n")), "{usage}");
        }
        assert!(help.lines().all(|line| line.len() <= COLUMNS), "{help}");
    }
}
