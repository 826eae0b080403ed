//! Pages that the commands write, in a browser, and two results compared.

use std::net::TcpStream;

use crate::support::run;
use crate::support::web::Web;
use crate::support::{done, file, refused, scratch};
use serde_json::{Value, json};
use syncline_testkit::{Need, look, require};

const BENCH: [&str; 5] =
    ["bench", "create", "fileio/random-overwrite-fsync", "--operations=40", "--size=128"];

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
    let fjord = ["bench", "fjord/email", "--operations=2", "--size=128", "--log-size=16M"];
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
    for (name, charts) in [("bench", 10), ("fjord", 2), ("trace", 1), ("cache", 3)] {
        let seen = seen(&at(&format!("{name}.html")), name);
        assert_eq!(seen["charts"], charts, "{name}");
    }
    for name in ["compare", "probe"] {
        assert!(seen(&at(&format!("{name}.html")), name)["charts"].as_u64() > Some(2), "{name}");
    }
}

fn seen(path: &str, name: &str) -> Value {
    let seen: Value = serde_json::from_str(&look(path.as_ref(), 1000, name == "bench")).unwrap();
    for none in ["errors", "overlaps", "outside", "unnamed", "empty"] {
        assert_eq!(seen[none], json!([]), "{none}, {name}");
    }
    assert!(seen["footer"].as_str().unwrap().contains(name), "{name}: {}", seen["footer"]);
    seen
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
    assert!(text.contains("metrics.flushes") && text.contains("+50.0 %"), "{text}");
    assert!(text.ends_with("1 figures differ, 1 are equal\n"), "{text}");
    let said = refused(2, &["compare".as_ref(), a.as_os_str(), other.as_os_str()]);
    assert!(said.contains("compare two results of one command"), "{said}");
    let bad = file(dir.path(), "bad.json", "{");
    let said = refused(2, &["compare".as_ref(), a.as_os_str(), bad.as_os_str()]);
    assert!(said.contains("not JSON"), "{said}");
    let none = dir.path().join("none.json");
    refused(1, &["compare".as_ref(), a.as_os_str(), none.as_os_str()]);
}

#[test]
fn a_mount_is_shown_as_a_page_that_renews_itself() {
    let test = "a_mount_is_shown_as_a_page_that_renews_itself";
    if !require(test, &[Need::E2fsck, Need::Fuse]) {
        return;
    }
    let dir = scratch();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let (image, mnt) = (at("m.img"), at("mnt"));
    std::fs::create_dir(&mnt).unwrap();
    done(&["mkfs", "--size", "16M", &image]);
    done(&["mount", &image, &mnt]);
    std::fs::write(at("mnt/file"), [7; 60_000]).unwrap();
    let web = Web::start(&mnt);
    let page = web.get("/");
    assert!(page.contains("live.json") && page.contains("syncline top"), "its footer");
    // Of this machine by one of its own names only.
    for (path, host, code) in [("/", "evil.example", 403), ("/x", "localhost:1", 404)] {
        let answer = web.ask(path, host);
        assert!(answer.contains(&format!(" {code} ")), "{answer}");
    }
    // Whoever announces more than it sends holds up nobody, and neither do a thousand that go away.
    let slow: Vec<_> =
        ["/x", "/", "/live.json"].into_iter().map(|path| web.announce(path)).collect();
    for _ in 0..1000 {
        drop(TcpStream::connect(web.address).unwrap());
    }
    assert_eq!(web.get("/"), page);
    drop(slow);
    let live: Value = serde_json::from_str(&web.get("/live.json")).unwrap();
    assert_eq!(live["title"], mnt.as_str());
    let taken = web.address.to_string();
    let said = refused(1, &["top", &mnt, "--web", &taken]);
    assert!(said.contains("in use; give another port"), "{said}");
    let said = refused(2, &["top", &mnt, "--web", "0.0.0.0:0"]);
    assert!(said.contains("open to other machines"), "{said}");
    drop(web);
    assert_eq!(run(&["umount", &mnt]).code, 0);
    if require(&format!("{test}: drawn"), &[Need::Chromium]) {
        // The browser sees a file, so the figures come from a stub, and the time between them too:
        // several samples are shown before the page is looked at.
        let marked = "<script>const INTERVAL_MS = 100;";
        assert!(page.contains(marked));
        for (width, dark, step_ms) in [(1000, false, 10), (420, true, 99), (420, false, 61_700)] {
            let stub = format!(
                "<script>window.fetch=async()=>new Response({:?});let now=1.7e12;\
                 Date.now=()=>now+={step_ms};const INTERVAL_MS = 60;",
                live.to_string()
            );
            let page = file(dir.path(), "live.html", &page.replacen(marked, &stub, 1));
            let seen: Value = serde_json::from_str(&look(&page, width, dark)).unwrap();
            assert_eq!((&seen["errors"], &seen["overlaps"]), (&json!([]), &json!([])), "{step_ms}");
            let rates = live["rates"].as_array().unwrap().len();
            assert_eq!((&seen["live"], &seen["wide"]), (&json!(rates), &json!(false)));
        }
    }
}
