//! Pages that the commands write, in a browser, and two results compared.

use crate::support::{done, file, refused, scratch};
use serde_json::{Value, json};
use syncline_testkit::{Need, look, require};

const BENCH: [&str; 6] = [
    "bench",
    "several",
    "create",
    "fileio/random-overwrite-fsync",
    "--operations=40",
    "--size=128",
];

#[test]
fn every_page_is_drawn_and_legible() {
    let test = "every_page_is_drawn_and_legible";
    if !require(test, &[Need::E2fsck, Need::Chromium]) {
        return;
    }
    let dir = scratch();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let page = |name: &str| format!("--html={}", at(name));
    let json = |name: &str| format!("--json={}", at(name));
    done(&[&BENCH[..], &[&page("bench.html"), &json("a.json")]].concat());
    done(&[&BENCH[..], &["--seed=2", &json("b.json")]].concat());
    done(&["compare", &at("a.json"), &at("b.json"), &page("compare.html")]);
    let fjord = ["bench", "fjord", "email", "--operations=2", "--size=128", "--log-size=16M"];
    done(&[&fjord[..], &[&page("fjord.html")]].concat());
    let lines: String = (0..400)
        .map(|n| {
            format!("0,{},4096,{},{}.5\n", n * 977 % 9000, if n % 3 == 0 { "R" } else { "W" }, n)
        })
        .collect();
    let trace = file(dir.path(), "disk.csv", &lines);
    let trace = trace.display().to_string();
    done(&["trace", "stat", &page("trace.html"), &trace]);
    let of = format!("--trace={trace}");
    done(&["cache", "--policy=all", "--size=64p,128p", &of, &page("cache.html")]);
    done(&["probe", "sd-2012", "--size=16M", "--sustain=16M", &page("probe.html")]);
    let kept = at("disk.trace");
    done(&["trace", "import", &trace, "-o", &kept]);
    done(&["lifetime", &format!("--trace={kept}"), "--per-day=9", &page("lifetime.html")]);
    let few = ["--operations=12", "--fallocate-size=1M", "--period-us=1000"];
    done(&[&["latency", &at("")], &few[..], &[&page("latency.html")]].concat());
    done(&["reproduce", "eager-sync", &page("reproduce.html")]);
    for (at_page, (name, charts)) in [
        ("lifetime", 1),
        ("bench", 10),
        ("fjord", 2),
        ("trace", 1),
        ("cache", 3),
        ("compare", 1),
        ("reproduce", 11),
        ("latency", 4),
        ("probe", 9),
    ]
    .into_iter()
    .enumerate()
    {
        let seen = seen(&at(&format!("{name}.html")), name, at_page % 2 == 1);
        assert_eq!(seen["charts"], charts, "{name}");
        let height = seen["height"].as_u64();
        assert!(name != "reproduce" || height < Some(5600), "small multiples: {height:?}");
    }
}

/// On a desk, a tablet and a phone, in turn light and dark, or the other way round.
fn seen(path: &str, name: &str, dark: bool) -> Value {
    let [wide, ..] = [(1280, dark), (768, !dark), (390, dark)].map(|(width, dark)| {
        let seen: Value = serde_json::from_str(&look(path.as_ref(), width, dark)).unwrap();
        for none in ["errors", "overlaps", "outside", "unnamed", "empty", "dead", "cut"] {
            assert_eq!(seen[none], json!([]), "{none}, {name} at {width} pixels");
        }
        assert_eq!(seen["wide"], false, "{name} at {width} pixels");
        let back = if dark { "rgb(13, 17, 23)" } else { "rgb(255, 255, 255)" };
        assert_eq!(seen["back"], back, "{name} at {width} pixels");
        assert!(seen["footer"].as_str().unwrap().contains(name), "{name}: {}", seen["footer"]);
        seen
    });
    wide
}

#[test]
fn two_results_are_compared() {
    let dir = scratch();
    let of = |name: &str, flushes: u64, schema: &str| {
        let run = json!({"workload": "w", "metrics": {"flushes": flushes, "erases": 1}});
        file(dir.path(), name, &json!({"schema": schema, "runs": [run]}).to_string())
    };
    let a = of("a.json", 4, "syncline.bench/1");
    let b = of("b.json", 6, "syncline.bench/1");
    let other = of("c.json", 6, "syncline.cache/1");
    let text = done(&["compare".as_ref(), a.as_os_str(), b.as_os_str()]);
    assert!(text.contains(" flushes ") && text.contains("+50.0 %"), "{text}");
    assert!(text.ends_with("1 figures differ, 1 are equal\n"), "{text}");
    let run = json!({"workload": "v", "metrics": {"flushes": 4}});
    let text = json!({"schema": "syncline.bench/1", "runs": [run]}).to_string();
    let v = file(dir.path(), "v.json", &text);
    let said = refused(2, &["compare".as_ref(), a.as_os_str(), v.as_os_str()]);
    assert!(said.contains("no run in both") && said.contains("--ignore workload"), "{said}");
    let ignore = "--ignore=workload";
    let text = done(&["compare".as_ref(), ignore.as_ref(), a.as_os_str(), v.as_os_str()]);
    assert!(text.ends_with("1 figures differ, 1 are equal\n"), "{text}");
    let said = refused(2, &["compare".as_ref(), a.as_os_str(), other.as_os_str()]);
    assert!(said.contains("compare two results of one command"), "{said}");
    let bad = file(dir.path(), "bad.json", "{");
    let said = refused(2, &["compare".as_ref(), a.as_os_str(), bad.as_os_str()]);
    assert!(said.contains("not JSON"), "{said}");
    let none = dir.path().join("none.json");
    refused(1, &["compare".as_ref(), a.as_os_str(), none.as_os_str()]);
}
