//! Profiles: every built-in one is valid and tells its sources; specifications; every refusal.

use std::path::Path;
use syncline_nand::{NandError, Profile, Simulator, profiles};

fn nexus7_text() -> &'static str {
    profiles().find(|(name, _)| *name == "nexus7-emmc").unwrap().1
}

#[test]
fn built_in_profiles_are_valid_and_named_sources() {
    for (name, _) in profiles() {
        let p = Profile::by_name(name).unwrap();
        assert_eq!(p.name, name);
        assert!(!p.source.summary.is_empty() && !p.source.published.is_empty(), "{name}");
        Simulator::new(&p, 1 << 20).unwrap();
        Simulator::new(&p, 33 << 30).unwrap();
    }
}

#[test]
fn overrides_change_only_what_they_name() {
    let base = Profile::by_name("nexus7-emmc").unwrap();
    let p = Profile::parse_built_in("nexus7-emmc:streams=4, flush_us=1000,fua=true").unwrap();
    assert_eq!((p.ftl.streams, p.timing.flush_us, p.buffer.fua), (4, 1000, true));
    assert_eq!(p.geometry, base.geometry);
    assert_eq!(p.name, "nexus7-emmc:streams=4, flush_us=1000,fua=true");
    assert_eq!(Profile::parse_built_in("nexus7-emmc:").unwrap().ftl, base.ftl);
    assert!(Profile::parse_built_in("nexus7-emmc:mapping=page,victims=greedy").is_ok());
}

#[test]
fn a_path_is_read_by_the_caller() {
    let read = |path: &Path| {
        assert_eq!(path, Path::new("./a:b/card.toml"));
        Ok(nexus7_text().to_owned())
    };
    let p = Profile::parse_spec("./a:b/card.toml:streams=1", &read).unwrap();
    assert_eq!(p.ftl.streams, 1);
    let p = Profile::parse_spec("./a:b/card.toml", &read).unwrap();
    assert_eq!(p.ftl.streams, 2);
    let missing = |_: &Path| Err(std::io::Error::from(std::io::ErrorKind::NotFound));
    let e = Profile::parse_spec("card.toml", &missing).unwrap_err();
    assert!(matches!(e, NandError::File { .. }), "{e}");
}

#[test]
fn unknown_names_get_the_nearest() {
    let e = Profile::parse_built_in("nexus-emmc:streams=4").unwrap_err().to_string();
    assert!(e.contains("'nexus-emmc'; nearest: nexus7-emmc"), "{e}");
    let e = Profile::parse_built_in("nexus7").unwrap_err().to_string();
    assert!(e.contains("; nearest: nexus7-emmc"), "{e}");
    // None is near.
    let e = Profile::parse_built_in("foo").unwrap_err().to_string();
    assert!(!e.contains("nearest"), "{e}");
    // Other programs take lists.
    let e = Profile::parse_built_in("nexus7-emmc,ufs-4").unwrap_err().to_string();
    assert!(
        e.contains("; name one; commands that take several take `--device` once for each;"),
        "{e}"
    );
}

#[test]
fn bad_overrides() {
    let e = |spec| Profile::parse_built_in(spec).unwrap_err();
    let unknown = e("nexus7-emmc:stream=4");
    assert!(matches!(unknown, NandError::UnknownKey { .. }));
    assert!(unknown.to_string().contains("stream_window_kib, streams,"), "{unknown}");
    assert!(matches!(e("nexus7-emmc:streams"), NandError::BadOverride { .. }));
    assert!(matches!(e("nexus7-emmc:streams=many"), NandError::BadOverride { .. }));
    assert!(matches!(e("nexus7-emmc:fua=1"), NandError::BadOverride { .. }));
    assert!(matches!(e("nexus7-emmc:streams=-1"), NandError::Parse { .. }));
    assert!(matches!(e("nexus7-emmc:mapping=magic"), NandError::Parse { .. }));
    for (spec, key) in [
        ("nexus7-emmc:streams=1025", "streams"),
        ("nexus7-emmc:planes=99", "planes"),
        ("nexus7-emmc:merge_kib=6", "merge_kib"),
        ("nexus7-emmc:map_segment_kib=6", "map_segment_kib"),
        ("nexus7-emmc:map_unit_kib=3", "map_unit_kib"),
        ("nexus7-emmc:mapping=bast", "map_unit_kib"),
        ("nexus7-emmc:log_blocks=0", "log_blocks"),
        ("nexus7-emmc:bus_mb_per_s=0", "bus_mb_per_s"),
        ("nexus7-emmc:queue_depth=0", "queue_depth"),
    ] {
        match e(spec) {
            NandError::BadValue { key: k, .. } => assert_eq!(k, key),
            other => panic!("{spec}: {other}"),
        }
    }
}

#[test]
fn bad_texts() {
    let read = |text: &str| Profile::from_toml("x", text).unwrap_err();
    let unknown = nexus7_text().replace("streams = 2", "streams = 2\nturbo = 1");
    assert!(read(&unknown).to_string().contains("turbo"));
    let missing = nexus7_text().replace("streams = 2", "");
    assert!(read(&missing).to_string().contains("streams"));
    let table = format!("{}\n[extra]\na = 1\n", nexus7_text());
    assert!(read(&table).to_string().contains("extra"));
    let wrong = nexus7_text().replace("streams = 2", "streams = \"two\"");
    assert!(matches!(read(&wrong), NandError::Parse { .. }));
    assert!(matches!(read("= 3"), NandError::Parse { .. }));
    assert!(matches!(read(""), NandError::Parse { .. }));
}

#[test]
fn open_parameters_have_a_range() {
    let card = Profile::by_name("sd-2012").unwrap();
    let names = |profile: &Profile| -> Vec<(String, u32)> {
        let range = profile.range().unwrap();
        range.iter().map(|end| (end.name.clone(), end.ftl.log_blocks)).collect()
    };
    let ends = [("sd-2012:log_blocks=1", 1), ("sd-2012", 4), ("sd-2012:log_blocks=8", 8)];
    assert_eq!(names(&card), ends.map(|(name, logs)| (name.to_owned(), logs)));
    // A value that is given is not open, and a name of the range is a specification.
    let given = Profile::parse_built_in("sd-2012:log_blocks=8").unwrap();
    assert_eq!(given, card.range().unwrap()[2]);
    assert_eq!(names(&given), [("sd-2012:log_blocks=8".to_owned(), 8)]);
    let other = Profile::parse_built_in("sd-2012:request_us=5").unwrap();
    assert_eq!(names(&other)[0], ("sd-2012:request_us=5,log_blocks=1".to_owned(), 1));
    assert_eq!(Profile::by_name("nexus7-emmc").unwrap().range().unwrap().len(), 1);
    // The text of a profile keeps its ranges and hosts.
    let again = Profile::from_toml("sd-2012", &card.to_toml().unwrap()).unwrap();
    assert_eq!(again, card);
}

#[test]
fn another_host_has_its_parameters_and_figures() {
    let phone = Profile::by_name("sd-2012").unwrap();
    let reader = Profile::parse_built_in("sd-2012:host=reader").unwrap();
    assert!(reader.host.request_us > phone.host.request_us);
    assert!(reader.timing.bus_mb_per_s > phone.timing.bus_mb_per_s);
    assert_eq!((reader.geometry, reader.ftl), (phone.geometry, phone.ftl));
    assert_eq!((phone.checks.len(), reader.checks.len()), (12, 4));
    for check in &reader.checks {
        let there = phone.checks.iter().find(|c| c.host.is_some() && c.figure == check.figure);
        assert_eq!(phone.measure(there.unwrap()).unwrap(), reader.measure(check).unwrap());
    }
    assert_eq!(phone.with("host=reader").unwrap(), reader);
}

#[test]
fn bad_ranges_and_hosts_are_refused() {
    let text = profiles().find(|(name, _)| *name == "sd-2012").unwrap().1;
    for range in [
        "{ value = 4, low = 5, high = 8 }",
        "{ value = 9, low = 1, high = 8 }",
        "{ value = 4, low = 1 }",
        "{ value = 4, low = 1, high = 8, more = 9 }",
        "{ value = \"4\", low = 1, high = 8 }",
    ] {
        let text = text.replace("{ value = 4, low = 1, high = 8 }", range);
        let e = Profile::from_toml("x", &text).unwrap_err();
        assert_eq!(e, NandError::BadRange { key: "log_blocks".to_owned() }, "{range}");
    }
    let e = Profile::parse_built_in("sd-2012:host=tablet").unwrap_err().to_string();
    assert!(e.contains("'tablet'") && e.contains("reader"), "{e}");
    let e = Profile::parse_built_in("nexus7-emmc:host=reader").unwrap_err().to_string();
    assert!(e.contains("has no host 'reader'"), "{e}");
    // A host that names no parameter is found when it is chosen.
    let text = format!("{}\n[hosts.other]\nturbo = 1\n", text);
    let read = |_: &Path| Ok(text.clone());
    let e = Profile::parse_spec("./x.toml:host=other", &read).unwrap_err();
    assert!(matches!(e, NandError::UnknownKey { .. }), "{e}");
}
