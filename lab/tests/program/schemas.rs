//! Every document that a command gives out fits its published schema (`docs/schemas`).

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::support::serving::Serving;
use crate::support::web::Web;
use crate::support::{done, run, scratch};
use serde_json::Value;
use syncline_lab::trace::{Header, Names, Op, Record, Sink, TraceKind, TraceWriter};
use syncline_testkit::{Need, require};

fn schemas() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/schemas")
}

/// Checks a document, and notes its schema.
fn fits(text: &str, seen: &mut BTreeSet<String>) {
    let document: Value = serde_json::from_str(text).expect("a document");
    let tag = document["schema"].as_str().expect("a schema").to_owned();
    let name = tag.strip_prefix("syncline.").unwrap().replace('/', "-") + ".json";
    let path = schemas().join(&name);
    let schema = std::fs::read_to_string(&path)
        .unwrap_or_else(|err| panic!("{tag}: {err}; publish it as docs/schemas/{name}"));
    let schema: Value = serde_json::from_str(&schema).expect("a schema is JSON");
    let mut wrong = Vec::new();
    check(&schema, &document, "", &mut wrong);
    assert!(wrong.is_empty(), "{tag}: {wrong:#?}");
    seen.insert(name);
}

/// The part of JSON Schema that the schemas use; another keyword is a mistake in a schema. The
/// crate jsonschema would do more, and its features would make half of the workspace compile anew.
fn check(schema: &Value, value: &Value, path: &str, wrong: &mut Vec<String>) {
    let of = |value: &Value| match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    for (keyword, rule) in schema.as_object().expect("a schema is an object") {
        match keyword.as_str() {
            "$schema" | "title" => {}
            "const" if rule == value => {}
            "const" => wrong.push(format!("{path}: {value} is not {rule}")),
            "type" => {
                let names = rule.as_array().cloned().unwrap_or_else(|| vec![rule.clone()]);
                let found = of(value);
                let fits = |name: &Value| name == found || name == "number" && found == "integer";
                if !names.iter().any(fits) {
                    wrong.push(format!("{path}: {found}, the schema has {rule}"));
                }
            }
            "required" => {
                for key in rule.as_array().expect("a list").iter().filter_map(Value::as_str) {
                    if value.is_object() && value.get(key).is_none() {
                        wrong.push(format!("{path}/{key}: is missing"));
                    }
                }
            }
            "properties" => {
                for (key, below) in value.as_object().into_iter().flatten() {
                    match rule.get(key) {
                        Some(rule) => check(rule, below, &format!("{path}/{key}"), wrong),
                        None => wrong.push(format!("{path}/{key}: is not in the schema")),
                    }
                }
            }
            "additionalProperties" => {
                for (key, below) in value.as_object().into_iter().flatten() {
                    check(rule, below, &format!("{path}/{key}"), wrong);
                }
            }
            "items" => {
                for below in value.as_array().into_iter().flatten() {
                    check(rule, below, &format!("{path}[]"), wrong);
                }
            }
            other => panic!("{other}: the schemas use no such keyword"),
        }
    }
}

#[test]
fn a_document_that_does_not_fit_is_told() {
    let schema = serde_json::json!({
        "type": "object", "required": ["a"], "properties": {
            "a": {"type": ["integer", "null"]}, "b": {"items": {"type": "number"}},
            "c": {"const": "x"},
        },
    });
    let found = |document: Value| {
        let mut wrong = Vec::new();
        check(&schema, &document, "", &mut wrong);
        wrong
    };
    assert!(found(serde_json::json!({"a": null, "b": [1, 2.5], "c": "x"})).is_empty());
    assert_eq!(found(serde_json::json!({"b": []})), ["/a: is missing"]);
    let wrong = found(serde_json::json!({"a": "x", "b": [true], "c": 1, "d": 2}));
    assert_eq!(wrong.len(), 4, "{wrong:?}");
}

/// A trace of four writes and a read.
fn trace(dir: &Path, kind: TraceKind) -> String {
    let header = Header { kind, source: "test".into() };
    let mut writer = TraceWriter::new(Vec::new(), &header).unwrap();
    let mut names = Names::default();
    let file = if kind == TraceKind::Syscall { names.intern("/f") } else { Default::default() };
    for n in 0..5_u64 {
        let op = if n == 4 { Op::Read } else { Op::Write };
        let record = Record::new(n * 1_000_000, op).range(n % 2 * 4096, 4096);
        writer.record(&names, &Record { file, process: 7, ..record }).unwrap();
    }
    let path = dir.join(format!("{}.trace", kind.name()));
    std::fs::write(&path, writer.finish(&names).unwrap()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn documents_fit_their_schemas() {
    let mut seen = BTreeSet::new();
    let dir = scratch();
    let (block, calls) =
        (trace(dir.path(), TraceKind::Block), trace(dir.path(), TraceKind::Syscall));
    let here = dir.path().to_str().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("bytes"), [3; 60_000]).unwrap();
    for arguments in [
        &["devices", "--json"][..],
        &["trace", "stat", &block, "--json", "-"],
        &["trace", "stat", &calls, "--json", "-"],
        &["cache", "--trace", &calls, "--size", "4K", "--device", "sd-2012", "--json", "-"],
        &["replay", "--trace", &block, "--device", "sd-2012", "--json", "-"],
        &["advise", &calls, "--size", "256", "--json", "-"],
        &["lifetime", "--trace", &block, "--json"],
        &["lifetime", "--trace", &block, "--device", "emmc-gnote", "--json"],
        &["probe", "sd-2012", "--json", "-"],
        &["reproduce", "informed-storage/figure-6", "--json", "-"],
        &["reproduce", "--list", "--json", "-"],
        &["buffer", "zeros", &path("bytes"), "--json"],
        &["latency", here, "--operations", "3", "--fallocate-size", "1M", "--json", "-"],
        &["bench", "sqlite", "insert", "--operations", "3", "--dir", here, "--json", "-"],
    ] {
        let ran = run(arguments);
        assert_eq!(ran.code, 0, "{arguments:?}: {}", ran.err);
        fits(&ran.text(), &mut seen);
    }
    done(&["trace", "hot", &calls, "--json", &path("hot.json")]);
    fits(&std::fs::read_to_string(path("hot.json")).unwrap(), &mut seen);
    done(&["flashlite", "write", &path("log"), &path("bytes"), "--shuffle", "4K"]);
    fits(&done(&["flashlite", "info", &path("log"), "--json"]), &mut seen);
    let generated = ["--generate", "--records", "60", "--period-us", "100", "--fault-at", "30"];
    run(&[&["record", here, "--pre", "5", "--post", "10"][..], &generated].concat());
    fits(&done(&["record-read", here, "--json"]), &mut seen);
    buffer(dir.path(), &mut seen);
    let mut left_out = vec!["flash-1.json", "bench-1.json", "fjord-1.json", "info-1.json"];
    left_out.push("check-1.json");
    left_out.push("applications-1.json");
    left_out.push("sensitivity-1.json");
    if require("documents_fit_their_schemas: images", &[Need::E2fsck]) {
        left_out.retain(|name| *name == "flash-1.json");
        done(&["mkfs", "--size", "16M", &path("i.img")]);
        fits(&done(&["info", &path("i.img"), "--json"]), &mut seen);
        done(&["mkfs", "--size", "16M", &path("damaged.img")]);
        let damage = std::fs::File::options().write(true).open(path("damaged.img")).unwrap();
        damage.write_all_at(&[0xff; 64], 1 << 16).unwrap();
        let checked = run(&["check", "--json", &path("i.img"), &path("damaged.img")]);
        fits(&checked.text(), &mut seen);
        benches(&mut seen);
    }
    if require("documents_fit_their_schemas: flash", &[Need::Root, Need::Fuse]) {
        left_out.retain(|name| *name != "flash-1.json");
        let (serving, _) = Serving::start(&["--size", "16M"]);
        fits(&done(&["flash", "stats", serving.path().to_str().unwrap()]), &mut seen);
    }
    preload(dir.path(), &mut seen);
    left_out.extend(["status-1.json", "top-1.json"]);
    if require("documents_fit_their_schemas: mount", &[Need::Fuse, Need::E2fsck]) {
        left_out.retain(|name| !["status-1.json", "top-1.json"].contains(name));
        mounts(dir.path(), &mut seen);
    }
    for entry in std::fs::read_dir(schemas()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let checked = seen.contains(&name) || left_out.contains(&name.as_str());
        assert!(checked, "docs/schemas/{name} is of no document");
    }
}

/// Documents of `bench`, one of each kind.
fn benches(seen: &mut BTreeSet<String>) {
    let sizes = ["--operations", "3", "--size", "64", "--json", "-"];
    for more in [
        &["several", "create", "sqlite/insert", "--mtime-update", "off,100", "--alloc", "default"]
            [..],
        &["create", "--sensitivity"],
        &["fjord", "rlbench", "--scale", "1"],
        &["fjord", "day", "--scale", "1"],
        &["applications", "maps", "--scale", "10"],
    ] {
        // Applications and a day count no operations; a day fills more than a small volume.
        let size = match more[..2] {
            ["applications", _] | ["fjord", "day"] => &sizes[4..],
            _ => &sizes[..],
        };
        fits(&done(&[&["bench"][..], more, size].concat()), seen);
    }
}

fn preload(dir: &Path, seen: &mut BTreeSet<String>) {
    // Cargo builds it for the tests and puts it beside them, or a level above.
    let test = std::env::current_exe().unwrap();
    let mut dirs = test.ancestors().skip(1).take(2).map(|dir| dir.join("libsyncline_preload.so"));
    let library = dirs.find(|path| path.is_file()).unwrap();
    let (library, report) = (library.to_str().unwrap(), dir.join("report"));
    let script = format!("echo x > {0}; sync {0}", dir.join("x").display());
    let words = ["preload", "--library", library, "--relaxed", "*", "--report"];
    done(&[&words[..], &[report.to_str().unwrap(), "--", "sh", "-c", &script]].concat());
    fits(std::fs::read_to_string(report).unwrap().trim(), seen);
}

/// Status and page of mounts, which have parts of their own with each option.
fn mounts(dir: &Path, seen: &mut BTreeSet<String>) {
    let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    std::fs::create_dir(path("mnt")).unwrap();
    let (image, mnt) = (path("m.img"), path("mnt"));
    done(&["mkfs", "--size", "32M", &image]);
    let buffered = format!("sync=ordered,buffer_log={},trace={}", path("m.log"), path("run"));
    for options in ["sync=periodic", &buffered] {
        done(&["mount", "-o", options, &image, &mnt]);
        std::fs::write(path("mnt/file"), "bytes").unwrap();
        fits(&done(&["status", "--json", &mnt]), seen);
        let web = Web::start(&mnt);
        fits(&web.get("/live.json"), seen);
        drop(web);
        done(&["umount", &mnt]);
    }
}

fn buffer(dir: &Path, seen: &mut BTreeSet<String>) {
    let device = dir.join("card.img");
    std::fs::File::create(&device).unwrap().set_len(16 << 20).unwrap();
    let served = dir.join("served");
    std::fs::create_dir(&served).unwrap();
    let (device, served) = (device.to_str().unwrap(), served.to_str().unwrap());
    let log = dir.join("card.log");
    let log = ["--log", log.to_str().unwrap(), "--create", "--as", "nbd"];
    run(&[&["buffer", "attach", device, served][..], &log].concat());
    fits(&done(&["buffer", "status", served, "--json"]), seen);
    done(&["buffer", "detach", served]);
}
