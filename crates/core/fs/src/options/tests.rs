//! Tests of the mount options.

use super::*;

/// Shares of the usual cache for a small one along the files; Linux's in the other orders.
#[test]
fn a_small_cache_may_be_dirty_to_half() {
    let limits = |list: &str| {
        let limits = LiveLimits::of(&MountOptions::parse(list).unwrap());
        (limits.dirty_background_ratio, limits.dirty_ratio)
    };
    assert_eq!(limits("cache=4M,writeback=file"), (10, 20));
    assert_eq!(limits("cache=4M,writeback=policy"), (10, 20));
    assert_eq!(limits("cache=4M"), (50, 75));
    let space = |list: &str| limits(&format!("writeback=space,{list}"));
    assert_eq!(space("cache=1G"), (10, 20));
    assert_eq!(space("cache=128M"), (20, 40));
    assert_eq!(space("cache=64M"), (40, 75));
    assert_eq!(space("cache=4M"), (50, 75));
    assert_eq!(space("cache=4M,sync=ordered"), (50, 75));
    assert_eq!(space("cache=4M,dirty_background_ratio=10"), (10, 75));
    assert_eq!(space("cache=4M,dirty_ratio=20"), (50, 20));
}

#[test]
fn write_back_of_a_small_cache_is_along_the_files() {
    let order = |list: &str| MountOptions::parse(list).unwrap().writeback_order();
    for list in ["cache=255M", "cache=4M,sync=periodic", "cache=1G,writeback=space"] {
        assert_eq!(order(list), Writeback::Space, "{list}");
    }
    for list in ["", "cache=256M", "cache=4M,sync=ordered", "cache=4M,writeback=file"] {
        assert_eq!(order(list), Writeback::File, "{list}");
    }
}

#[test]
fn parses_linux_names() {
    let o = MountOptions::parse("ro,noatime,commit=30,cache=64M,dirty_ratio=40").unwrap();
    assert!(o.read_only);
    assert_eq!((o.atime, o.commit_s, o.cache_bytes), (Atime::Noatime, 30, 64 << 20));
    assert_eq!(o.dirty_ratio, Some(40));
    assert!(o.auto_da_alloc && !MountOptions::parse("noauto_da_alloc").unwrap().auto_da_alloc);
    assert_eq!(MountOptions::parse("").unwrap(), MountOptions::default());
}

#[test]
fn refuses_with_the_nearest_name() {
    let err = MountOptions::parse("noatmie").unwrap_err().to_string();
    assert!(err.contains("`noatime`"), "{err}");
    let err = MountOptions::parse("sync=packed").unwrap_err().to_string();
    assert!(err.ends_with("periodic, or `log=packed`"), "{err}");
    assert!(MountOptions::parse("commit=0").is_err());
    assert!(MountOptions::parse("commit").is_err());
    assert!(MountOptions::parse("cache=4").is_err());
}

#[test]
fn the_mtime_interval_is_1_to_1000_ms() {
    let parse = |list: &str| MountOptions::parse(list).map(|o| o.mtime_update);
    assert_eq!(parse("mtime_update"), Ok(MtimeUpdate::Interval(100)));
    assert_eq!(parse("mtime_update=1"), Ok(MtimeUpdate::Interval(1)));
    assert_eq!(parse("mtime_update=seen"), Ok(MtimeUpdate::Seen));
    assert_eq!(parse("mtime_update=1000,un_mtime_update"), Ok(MtimeUpdate::Tick));
    for bad in ["mtime_update=0", "mtime_update=1001", "mtime_update=", "un_mtime_update=1"] {
        assert!(matches!(parse(bad), Err(FsError::Invalid(_))), "{bad}");
    }
}

#[test]
fn zones_and_policies_go_together() {
    let parse = |list: &str| MountOptions::parse(list).map(|o| (o.alloc, o.hot_zones));
    assert_eq!(parse(""), Ok((Alloc::Default, 0)));
    assert_eq!(parse("hot_zones=2"), Ok((Alloc::HotZones, 2)));
    assert_eq!(parse("alloc=hot_zones"), Ok((Alloc::HotZones, 0)));
    assert_eq!(parse("alloc=lifetime"), Ok((Alloc::Lifetime, 0)));
    assert_eq!(parse("alloc=lifetime,hot_zones=1"), Ok((Alloc::Lifetime, 1)));
    assert_eq!(parse("hot_zones=1,alloc=lifetime"), Ok((Alloc::Lifetime, 1)));
    assert_eq!(parse("hot_zones=1,alloc=default"), Ok((Alloc::Default, 0)));
    assert_eq!(parse("alloc=lifetime,hot_zones=0"), Ok((Alloc::Default, 0)));
    let err = parse("alloc=linux").unwrap_err().to_string();
    assert!(err.contains("default, hot_zones, lifetime"), "{err}");
}

#[test]
fn presets_set_both_values() {
    let o = MountOptions::parse("writeback_preset=android").unwrap();
    assert_eq!((o.dirty_expire_centisecs, o.dirty_background_ratio), (200, Some(5)));
}
