//! `info`: the superblock, the state of the journal, and free space.

use serde_json::{Value, json};
use syncline_device::{BlockDevice, Kind, Origin};
use syncline_fs::Volume;
use syncline_image::Image;
use syncline_ondisk::Superblock;
use syncline_ondisk::jbd2::{JOURNAL_SUPERBLOCK_BYTES, JournalSuperblock};
use syncline_ondisk::superblock::{STATE_ERROR, STATE_VALID};

use crate::args::Info;
use crate::contain::Bounds;
use crate::error::{Failure, Result};
use crate::format::{self, Out};
use crate::image;

/// Shows an image. What the superblock says is shown also for images that cannot be mounted.
pub(crate) fn run(args: &Info) -> Result<()> {
    let path = &args.image;
    Bounds::reader(path).over(&args.part).enter();
    let dev = image::part(path, &args.part)?;
    let sb = image::superblock(&*dev, path)?;
    let image = image::read(path, &image::opening(&args.part, Bounds::default()));
    let mut facts = superblock_facts(&sb);
    if let Ok(image) = &image {
        facts.extend(volume_facts(image, &sb, &*dev)?);
    }
    let mut out = Out::new();
    if args.json {
        let object: serde_json::Map<String, Value> =
            facts.into_iter().map(|fact| (fact.key.to_owned(), fact.value)).collect();
        let document = json!({ "schema": "syncline.info/1", "image": path, "info": object });
        out.text(format!("{document:#}\n"))?;
    } else {
        let rows: Vec<Vec<String>> =
            facts.iter().map(|fact| vec![label(fact.key), fact.text()]).collect();
        out.text(format::table(&rows, &[]))?;
    }
    out.flush()?;
    image.map(drop)
}

/// One line.
struct Fact {
    /// Name in the document; with spaces, in the table.
    key: &'static str,
    value: Value,
    /// Text in the table, if it differs from the value.
    shown: Option<String>,
}

impl Fact {
    fn new(key: &'static str, value: impl Into<Value>) -> Fact {
        Fact { key, value: value.into(), shown: None }
    }

    fn shown(key: &'static str, value: impl Into<Value>, shown: String) -> Fact {
        Fact { key, value: value.into(), shown: Some(shown) }
    }

    fn bytes(key: &'static str, bytes: u64) -> Fact {
        Fact::shown(key, bytes, format!("{bytes} ({})", format::size(bytes)))
    }

    fn time(key: &'static str, seconds: u64) -> Fact {
        let shown = match seconds {
            0 => "never".to_owned(),
            _ => format::seconds(i64::try_from(seconds).unwrap_or(i64::MAX / 2)) + " UTC",
        };
        Fact::shown(key, seconds, shown)
    }

    fn list(key: &'static str, names: impl Iterator<Item = String>) -> Fact {
        let names: Vec<String> = names.collect();
        Fact::shown(key, json!(names), names.join(" "))
    }

    fn text(&self) -> String {
        match (&self.shown, &self.value) {
            (Some(shown), _) => shown.clone(),
            (None, Value::String(text)) => text.clone(),
            (None, other) => other.to_string(),
        }
    }
}

fn superblock_facts(sb: &Superblock) -> Vec<Fact> {
    let block_size = 1024_u64.checked_shl(sb.s_log_block_size.min(6)).unwrap_or(1024);
    let state = match (sb.s_state & STATE_VALID != 0, sb.s_state & STATE_ERROR != 0) {
        (_, true) => "has errors",
        (true, false) if !sb.needs_recovery() => "clean",
        _ => "in use, or not cleanly unmounted",
    };
    let names = sb
        .s_feature_compat
        .names()
        .chain(sb.s_feature_incompat.names())
        .chain(sb.s_feature_ro_compat.names());
    vec![
        Fact::new("label", text(&sb.s_volume_name)),
        Fact::new("uuid", uuid(&sb.s_uuid)),
        Fact::new("state", state),
        Fact::list("features", names),
        Fact::new("needs_recovery", sb.needs_recovery()),
        Fact::bytes("size_bytes", sb.s_blocks_count.saturating_mul(block_size)),
        Fact::new("block_size_bytes", block_size),
        Fact::new("blocks", sb.s_blocks_count),
        Fact::new("blocks_per_group", sb.s_blocks_per_group),
        Fact::new("inodes", sb.s_inodes_count),
        Fact::new("inode_size_bytes", sb.inode_size() as u64),
        Fact::time("made_s", sb.s_mkfs_time),
        Fact::time("last_mount_s", sb.s_mtime),
        Fact::time("last_write_s", sb.s_wtime),
        Fact::time("last_check_s", sb.s_lastcheck),
        Fact::new("mounts_since_check", sb.s_mnt_count),
        Fact::new("errors_seen", sb.s_error_count),
    ]
}

fn volume_facts(image: &Image, sb: &Superblock, dev: &dyn BlockDevice) -> Result<Vec<Fact>> {
    let space = image.vol.statfs();
    let size = u64::from(space.block_size);
    let mut facts = vec![
        Fact::bytes("free_bytes", space.blocks_free.saturating_mul(size)),
        Fact::bytes("available_bytes", space.blocks_available.saturating_mul(size)),
        Fact::new("free_inodes", space.files_free),
    ];
    if sb.has_journal() {
        facts.extend(journal_facts(image, &image.vol, sb, dev)?);
    }
    Ok(facts)
}

fn journal_facts(
    image: &Image,
    vol: &Volume,
    sb: &Superblock,
    dev: &dyn BlockDevice,
) -> Result<Vec<Fact>> {
    let inode = vol.iget(sb.s_journal_inum)?;
    let attr = vol.getattr(&inode);
    let first = vol.fiemap(&inode, 0, 1)?.into_iter().next().ok_or_else(|| {
        Failure::Corrupt("the journal has no blocks; run `syncline repair` on the image".into())
    })?;
    let mut bytes = [0; JOURNAL_SUPERBLOCK_BYTES];
    // From the image itself: the overlay's journal is empty by now.
    dev.read(first.physical, &mut bytes, Origin::new(Kind::Journal, true))?;
    let log = JournalSuperblock::decode(&bytes)?;
    let checksums = log
        .checksum_kind()
        .map_or_else(|_| "of no known kind".to_owned(), |kind| format!("{kind:?}").to_lowercase());
    let block_bytes = 1024_u32.checked_shl(sb.s_log_block_size.min(6)).unwrap_or(1024);
    let (format, unit_bytes) = match (syncline_ondisk::packed::is_marked(sb), log.s_packed_unit) {
        (false, _) => ("jbd2", block_bytes),
        (true, 0) => ("packed", block_bytes.max(4096)),
        (true, unit) => ("packed", block_bytes.max(unit)),
    };
    let replay = &image.report;
    Ok(vec![
        Fact::bytes("journal_size_bytes", attr.size),
        Fact::new("journal_format", format),
        Fact::bytes("journal_unit_bytes", u64::from(unit_bytes)),
        Fact::new("journal_checksums", checksums),
        Fact::new("journal_sequence", log.s_sequence),
        Fact::new("journal_errno", log.s_errno),
        Fact::new("journal_transactions_to_replay", replay.transactions_replayed),
        Fact::new("journal_blocks_to_replay", replay.blocks_replayed),
        Fact::new("orphans", replay.orphans),
    ])
}

/// `last_mount_s` is shown as `last mount:`, because its value shows the unit.
fn label(key: &str) -> String {
    let key = key.strip_suffix("_bytes").or(key.strip_suffix("_s")).unwrap_or(key);
    format!("{}:", key.replace('_', " "))
}

/// Bytes up to the first NUL.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or(&[])).into_owned()
}

fn uuid(bytes: &[u8; 16]) -> String {
    let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or(&[]).concat();
    [part(0, 4), part(4, 6), part(6, 8), part(8, 10), part(10, 16)].join("-")
}
