//! Facts of the superblock, the journal and the space.

use std::path::Path;

use syncline_image::superblock;
use syncline_ondisk::superblock::{STATE_ERROR, STATE_VALID};

use crate::failure::Result;
use crate::json::Json;
use crate::session::{Session, unnamed};

/// Bytes up to the first NUL.
fn text(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn uuid(bytes: &[u8; 16]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut rest = &bytes[..];
    let mut part = |len: usize| {
        let (now, later) = rest.split_at(len);
        rest = later;
        hex(now)
    };
    [part(4), part(2), part(2), part(2), part(6)].join("-")
}

impl Session {
    /// Facts on the part, and on the volume if it is mounted.
    ///
    /// # Errors
    /// No ext4; I/O.
    pub fn info(&self) -> Result<String> {
        let sb = superblock(self.disk_part()?, Path::new("image")).map_err(unnamed)?;
        let block = 1024_u64.checked_shl(sb.s_log_block_size.min(6)).unwrap_or(1024);
        let state = match (sb.s_state & STATE_VALID != 0, sb.s_state & STATE_ERROR != 0) {
            (_, true) => "has errors",
            (true, false) if !sb.needs_recovery() => "clean",
            _ => "in use, or not cleanly unmounted",
        };
        let space = self.vol().ok().map(syncline_fs::Volume::statfs);
        let journal = match self.vol() {
            Ok(vol) if sb.has_journal() => Some(vol.getattr(&vol.iget(sb.s_journal_inum)?).size),
            _ => None,
        };
        let json = Json::object(|json| {
            json.bytes("label", text(&sb.s_volume_name));
            json.text("uuid", &uuid(&sb.s_uuid));
            json.text("state", state);
            json.flag("needsRecovery", sb.needs_recovery());
            json.number("size", sb.s_blocks_count.saturating_mul(block));
            json.number("blockSize", block);
            json.number("blocks", sb.s_blocks_count);
            json.number("inodes", sb.s_inodes_count);
            json.number("inodeSize", sb.inode_size());
            json.number("made", sb.s_mkfs_time);
            json.number("lastMount", sb.s_mtime);
            json.number("lastWrite", sb.s_wtime);
            json.number("lastCheck", sb.s_lastcheck);
            json.number("mountsSinceCheck", sb.s_mnt_count);
            json.number("errorsSeen", sb.s_error_count);
            json.some_number("journalSize", journal);
            if let Some(space) = space {
                let bytes = |blocks: u64| blocks.saturating_mul(space.block_size.into());
                json.number("free", bytes(space.blocks_free));
                json.number("available", bytes(space.blocks_available));
                json.number("freeInodes", space.files_free);
            }
            json.list("features", |json| {
                let features = sb.s_feature_compat.names();
                let features = features.chain(sb.s_feature_incompat.names());
                for name in features.chain(sb.s_feature_ro_compat.names()) {
                    json.item(name.as_bytes());
                }
            });
        });
        Ok(json.0)
    }
}
