//! `status`: the live view of a mount.

use std::path::Path;

use serde_json::Value;
use syncline_fuse::STATUS_XATTR;

use super::umount::{is_deleted, is_device};
use crate::args::Status;
use crate::error::{Failure, Result, plain};
use crate::format::Out;

/// Longest document.
const BYTES_MAX: usize = 64 << 10;

/// Prints it.
pub(crate) fn run(args: &Status) -> Result<()> {
    let text = read(&args.dir)?;
    let mut out = Out::new();
    if args.json {
        out.text(format!("{text}\n"))?;
        return out.flush();
    }
    let document: Value = serde_json::from_str(&text)
        .map_err(|err| Failure::Failed(format!("the answer is not JSON: {err}; try --json")))?;
    out.text(table(&document))?;
    out.flush()?;
    let image = document.pointer("/image").and_then(Value::as_str).map(Path::new);
    if let Some(image) = image.filter(|image| image.is_absolute() && is_deleted(image)) {
        let text = if is_device(image) {
            "pulled out while it is mounted; copy the files that can still be read, then unmount"
        } else {
            "deleted or moved while it is mounted: if deleted, all of it is gone after the \
             unmount; copy its files"
        };
        crate::complain(&format!("{}: {text}", image.display()));
    }
    Ok(())
}

/// The document of a mount.
pub(super) fn read(dir: &Path) -> Result<String> {
    let mut bytes = vec![0; BYTES_MAX];
    let len = rustix::fs::getxattr(dir, STATUS_XATTR, &mut bytes[..]).map_err(|err| {
        let text = match err {
            rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP => format!(
                "{}: not the root of a syncline mount; see `findmnt -t fuse.syncline`",
                dir.display()
            ),
            _ => return Failure::host(dir, &err.into()),
        };
        Failure::Failed(text)
    })?;
    bytes.truncate(len);
    String::from_utf8(bytes).map_err(|err| {
        let err = std::io::Error::other(err);
        Failure::Failed(format!("the answer is not text: {}; try again", plain(&err)))
    })
}

fn number(document: &Value, path: &str) -> u64 {
    document.pointer(path).and_then(Value::as_u64).unwrap_or(0)
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// The log's format, unit and bytes, and the bytes that packed records saved. Empty for a mount
/// that does not report its format.
fn log(document: &Value) -> String {
    let format = document.pointer("/journal/format").and_then(Value::as_str);
    let Some(format) = format else { return String::new() };
    let at = |name: &str| number(document, &format!("/journal/{name}"));
    let commit_kib = at("written_bytes") as f64 / 1024.0 / at("commits").max(1) as f64;
    let saved = match format {
        "packed" => format!(", {} saved", mib(at("saved_bytes"))),
        _ => String::new(),
    };
    let chosen = document.pointer("/journal/auto").and_then(Value::as_str);
    let chosen = chosen.map_or(String::new(), |why| format!(" (log=auto: {why})"));
    format!(
        "log       {format}{chosen}, units of {} bytes; {} written, {commit_kib:.1} KiB per \
         commit{saved}\n",
        at("unit_bytes"),
        mib(at("written_bytes")),
    )
}

/// The sync points of `sync=periodic`.
fn sync_points(document: &Value) -> String {
    let at = |path: &str| number(document, path);
    if !document.pointer("/moments").is_some_and(Value::is_object) {
        return String::new();
    }
    let changed = document.pointer("/moments/changed_since") == Some(&Value::Bool(true));
    format!(
        "points    {} sync points, the last {:.1} s ago{}; at most {} ms, writers held {} us\n",
        at("/moments/taken"),
        at("/moments/age_ms") as f64 / 1000.0,
        if changed { "" } else { ", no change since" },
        at("/moments/commit_ms_max"),
        at("/moments/hold_us_max"),
    )
}

/// Costs of the device, and the smallest sizes that an eager fsync writes in place.
fn costs(document: &Value) -> String {
    let Some(costs) = document.pointer("/costs").filter(|costs| costs.is_object()) else {
        return String::new();
    };
    let from = |path: &str| match costs.pointer(path).and_then(Value::as_u64) {
        Some(bytes) => format!("from {} KiB", bytes / 1024),
        None => "never".to_owned(),
    };
    format!(
        "costs     flush {} us, address {} us, MiB {:.1} ms; fsync writes in place: runs {}, \
         scattered pages {}\n",
        number(costs, "/flush_us"),
        number(costs, "/run_us"),
        costs.pointer("/mib_ms").and_then(Value::as_f64).unwrap_or(0.0),
        from("/run_in_place_bytes"),
        from("/scattered_in_place_bytes"),
    )
}

/// The heap of the serving process, and what its volume holds of it.
fn memory(document: &Value) -> String {
    let of = |name: &str| mib(number(document, &format!("/memory/{name}_bytes")));
    let (used, free, spare) = (of("heap"), of("heap_free"), of("spare_page"));
    let (inodes, names, blocks) = (of("inode"), of("name"), of("block"));
    format!(
        "memory    {used} in use, {free} free; spare pages {spare}, inodes {inodes}, names \
         {names}, metadata {blocks}\n"
    )
}

/// The layers of containment.
fn sandbox(document: &Value) -> String {
    let words = |name: &str| {
        let list = document.pointer(&format!("/sandbox/{name}")).and_then(Value::as_array);
        let words: Vec<&str> = list.into_iter().flatten().filter_map(Value::as_str).collect();
        words.join(", ")
    };
    let option = document.pointer("/sandbox/option").and_then(Value::as_str);
    let (Some(option), held, missing) = (option, words("held"), words("missing")) else {
        return String::new();
    };
    let missing = if missing.is_empty() { missing } else { format!("; missing: {missing}") };
    format!("sandbox   {option}: {held}{missing}\n")
}

fn table(document: &Value) -> String {
    let text = |path: &str| document.pointer(path).and_then(Value::as_str).unwrap_or("");
    let at = |path: &str| number(document, path);
    let mut out = format!("{}: sync={}", text("/image"), text("/sync"));
    if document.pointer("/read_only") == Some(&Value::Bool(true)) {
        out += ", read-only";
    }
    let transport = text("/transport");
    let (up, open) = (at("/uptime_s"), at("/open_files"));
    out += &format!(", through {transport}, up {up} s, {open} files open\n");
    if !text("/latched").is_empty() {
        out += &format!("LATCHED   {}\n", text("/latched"));
    }
    let hit = document.pointer("/cache/hit_ratio").and_then(Value::as_f64).unwrap_or(0.0);
    out += &format!(
        "journal   {} of {} blocks used, {} in the running transaction, {} commits\n",
        at("/journal/blocks_used"),
        at("/journal/blocks"),
        at("/journal/running_blocks"),
        at("/journal/commits"),
    );
    out += &log(document);
    out += &sync_points(document);
    out += &costs(document);
    out += &format!(
        "cache     {} of {}, {} dirty, hit ratio {hit:.2}\n",
        mib(at("/cache/bytes")),
        mib(at("/cache/bytes_max")),
        mib(at("/dirty_bytes")),
    );
    out += &memory(document);
    out += &format!(
        "syncs     {}, p50 {} us, p99 {} us, max {} us\n",
        at("/syncs/operations"),
        at("/syncs/latency_us_p50"),
        at("/syncs/latency_us_p99"),
        at("/syncs/latency_us_max"),
    );
    out += &format!(
        "programs  {} written, {} read outside the kernel's page cache\n",
        mib(at("/requests/app_bytes")),
        mib(at("/requests/read_bytes")),
    );
    out += &format!(
        "device    {} written ({} journal, {} metadata), {} read, {} flushes\n",
        mib(at("/device/written_bytes")),
        mib(at("/device/journal_bytes")),
        mib(at("/device/metadata_bytes")),
        mib(at("/device/read_bytes")),
        at("/device/flushes"),
    );
    out += &sandbox(document);
    if document.pointer("/buffer").is_some_and(Value::is_object) {
        let percent = 100 * at("/buffer/ring_used_pages") / at("/buffer/ring_pages").max(1);
        out += &format!(
            "buffer    log {}, {percent} % of {} used; {} in RAM, {} relaxed; {} pages logged\n",
            text("/buffer/log"),
            mib(at("/buffer/ring_pages") * 4096),
            mib(at("/buffer/ram_pages") * 4096),
            mib(at("/buffer/relaxed_pages") * 4096),
            at("/buffer/logged_pages"),
        );
    }
    out
}
