//! `mkfs`, `resize` and `export`: images made, and written as archives.

use std::ffi::OsString;
use std::io::{BufWriter, IsTerminal, Write, stdout};
use std::path::Path;

use clap::{CommandFactory, FromArgMatches};
use syncline_fs::FsError;
use syncline_fs::mkfs::{FsType, Options, Plan, parse_uuid};
use syncline_image::mkfs;
use syncline_image::mkfs::Identity;
use syncline_image::resize::{NewSize, resize_opened};
use syncline_image::{Opening, archive};

use super::cp::complete;
use crate::args::{Export, Format, Mkfs, MoreFormat, Resize};
use crate::contain::Bounds;
use crate::error::{Failure, Result};
use crate::format::{Out, Staged};
use crate::image::{self, Place, Standard};
use crate::interrupt;

/// The time of reproducible builds (reproducible-builds.org).
const EPOCH: &str = "SOURCE_DATE_EPOCH";

pub(super) fn epoch_s() -> Result<Option<u64>> {
    let Some(text) = std::env::var_os(EPOCH) else { return Ok(None) };
    let seconds = text.to_str().and_then(|text| text.trim().parse::<u64>().ok());
    let seconds = seconds.filter(|seconds| *seconds < 1 << 33);
    let bad = || Failure::Usage(format!("{EPOCH} is not a number of seconds; correct or unset it"));
    seconds.ok_or_else(bad).map(Some)
}

/// Makes a volume.
pub(crate) fn mkfs(args: &Mkfs) -> Result<()> {
    let mut format = args.format.clone();
    let usage = |err: clap::Error| {
        let text = err.to_string();
        let first = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        Failure::Usage(format!("after --: {first}; see syncline mkfs --help"))
    };
    let matches = MoreFormat::command().try_get_matches_from(&args.more).map_err(usage)?;
    format.update_from_arg_matches(&matches).map_err(usage)?;
    // A flag that is missing after -- would be off.
    format.dry_run |= args.format.dry_run;
    let (mut options, identity) = format_options(&format)?;
    let time_s = epoch_s()?;
    let names_owner = format.extended.iter().any(|option| option.contains("root_owner"));
    // A user who is not root gets the root directory, as far as users have numbers here.
    let user = syncline_image::user();
    if !names_owner && time_s.is_none() && user.0 != 0 {
        options.root_owner = user;
    }
    let made = mkfs::Mkfs {
        size_bytes: args.size.or(args.new_size),
        force: args.force || matches.get_flag("force"),
        time_s,
        identity,
        format: options,
        mode: args.mode,
    };
    if !format.dry_run {
        return Ok(made.make(&args.image)?);
    }
    let (plan, _) = made.plan(&args.image)?;
    let mut out = Out::new();
    out.text(summary(&plan))?;
    out.flush()
}

/// Summary of a planned volume.
fn summary(plan: &Plan) -> String {
    let (sb, geo) = (plan.superblock(), plan.geometry());
    let backups = (1..geo.group_count).filter(|group| sb.group_has_super(*group));
    let backups: Vec<String> = backups.map(|g| geo.group_first_block(g).to_string()).collect();
    format!(
        "{} blocks of {} bytes, {} reserved for root\n{} inodes of {} bytes\n{} groups of {} \
         blocks\n{} blocks of journal\nfeatures: {} {} {}\nbackups of the superblock: {}\n",
        sb.s_blocks_count,
        geo.block_size,
        sb.s_r_blocks_count,
        sb.s_inodes_count,
        geo.inode_size,
        geo.group_count,
        geo.blocks_per_group,
        plan.journal_blocks(),
        sb.s_feature_compat,
        sb.s_feature_incompat,
        sb.s_feature_ro_compat,
        if backups.is_empty() { "none".to_owned() } else { backups.join(" ") },
    )
}

/// The options of the file system, and its identity.
fn format_options(format: &Format) -> Result<(Options, Identity)> {
    let bytes = |text: &Option<OsString>| {
        text.as_ref().map_or(Vec::new(), |text| text.as_encoded_bytes().to_vec())
    };
    let mut options = Options {
        fs_type: match format.fs_type.as_deref() {
            Some("ext2") => FsType::Ext2,
            Some("ext3") => FsType::Ext3,
            _ => FsType::Ext4,
        },
        usage: format.usage.clone(),
        features: format.features.join(","),
        block_bytes: format.block_size,
        inodes: format.inodes,
        bytes_per_inode: format.bytes_per_inode,
        inode_bytes: format.inode_size,
        blocks_per_group: format.blocks_per_group,
        flex_groups: format.flex_groups,
        label: bytes(&format.label),
        last_mounted: bytes(&format.last_mounted),
        errors: match format.errors.as_deref() {
            Some("remount-ro") => 2,
            Some("panic") => 3,
            _ => 1,
        },
        ..Options::default()
    };
    if let Some(percent) = format.reserved {
        options.reserved_percent = percent;
    }
    let failed = |err: FsError| {
        Failure::Failed(match err {
            FsError::Invalid(text) | FsError::Unsupported(text) => text,
            other => other.to_string(),
        })
    };
    format.extended.iter().try_for_each(|text| options.set_extended(text)).map_err(failed)?;
    format.journal.iter().try_for_each(|text| options.set_journal(text)).map_err(failed)?;
    let identity = match format.uuid.as_deref() {
        None => Identity::Any,
        Some("random") => Identity::Random,
        Some("time") => Identity::Time,
        Some("clear" | "null") => Identity::Given([0; 16]),
        Some(text) => match parse_uuid(text) {
            Some(id) => Identity::Given(id),
            None => {
                let text = format!("{text} is not a UUID, clear, random or time; correct -U");
                return Err(Failure::Failed(text));
            }
        },
    };
    Ok((options, identity))
}

/// Changes the size of an image.
pub(crate) fn resize(args: &Resize) -> Result<()> {
    let size = args.size.or(args.new_size).map_or(NewSize::Minimum, NewSize::Bytes);
    let bounds = Bounds::writer(&args.image);
    let bytes = resize_opened(&args.image, size, &*bounds.when_opened(), interrupt::asked)?;
    let mut out = Out::new();
    out.text(format!("{}: {} bytes\n", args.image.display(), bytes))?;
    out.flush()
}

/// Names of files that would say that they are no plain archive.
const OTHER_KINDS: [&str; 13] =
    ["gz", "tgz", "xz", "txz", "zst", "tzst", "bz2", "lz4", "zip", "img", "qcow2", "vhdx", "vmdk"];

/// Writes an archive.
pub(crate) fn export(args: &Export) -> Result<()> {
    let whole = || Place { image: (&args.source).into(), path: b"/".to_vec() };
    let place = Place::split(&args.source).unwrap_or_else(whole);
    let to_file = args.output != Path::new("-");
    if !to_file && stdout().is_terminal() {
        let text = "an archive is not printed on a terminal; give -o FILE, or a pipe";
        return Err(Failure::Usage(text.into()));
    }
    let kind = args.output.extension().and_then(|kind| kind.to_str()).unwrap_or_default();
    if to_file && OTHER_KINDS.contains(&kind) {
        let text = format!(
            "{}: export writes a plain tar archive; name it .tar, or write to a pipe: \
             `syncline export IMAGE | gzip`",
            args.output.display()
        );
        return Err(Failure::Usage(text));
    }
    let bounds = Bounds::reader(&place.image);
    let bounds = if to_file { bounds.makes(&args.output) } else { bounds };
    let how = image::opening(&args.part, bounds);
    let how = Opening { rescue: image::rescue(args.rescued), ..how };
    let image = image::read(&place.image, &how)?;
    if !to_file {
        let mut out = Out::new();
        let done = archive::export(&image, &place.path, &mut out, &Standard::new("exported"));
        let done = done.map_err(Failure::from).and_then(|outcome| out.flush().map(|()| outcome));
        return complete(image.close(done)?);
    }
    let staged = Staged::private(&args.output)?;
    let mut out = BufWriter::with_capacity(1 << 20, staged.file(&args.output)?);
    let done = archive::export(&image, &place.path, &mut out, &Standard::new("exported"))
        .map_err(Failure::from);
    let written = out.flush().map_err(|err| Failure::host(&args.output, &err));
    let outcome = image.close(done.and_then(|outcome| written.map(|()| outcome)))?;
    staged.commit(&args.output)?;
    complete(outcome)
}
