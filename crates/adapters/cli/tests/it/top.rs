//! `top --web`: the page, its figures, and clients that misbehave.

use std::net::TcpStream;

use crate::support::web::Web;
use crate::support::{done, file, refused, run, scratch};
use serde_json::{Value, json};
use syncline_testkit::{Need, look, require};

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
    // A client that announces more than it sends delays no other, and neither do a thousand that go
    // away.
    let slow: Vec<_> =
        ["/x", "/", "/live.json"].into_iter().map(|path| web.announce(path)).collect();
    for _ in 0..1000 {
        drop(TcpStream::connect(web.address).unwrap());
    }
    assert_eq!(web.get("/"), page);
    drop(slow);
    let live: Value = serde_json::from_str(&web.get("/live.json")).unwrap();
    assert_eq!(live["title"], mnt.as_str());
    let metrics = web.get("/metrics");
    let is_metric = |line: &str| line.starts_with("syncline_") && line.split(' ').count() == 2;
    assert!(metrics.lines().count() > 20 && metrics.lines().all(is_metric), "{metrics}");
    let taken = web.address.to_string();
    let said = refused(1, &["top", &mnt, "--web", &taken]);
    assert!(said.contains("in use; give another port"), "{said}");
    // A port alone is one of this machine.
    let said = refused(1, &["top", &mnt, "--web", &web.address.port().to_string()]);
    assert!(said.contains(&taken) && said.contains("in use; give another port"), "{said}");
    let said = refused(2, &["top", &mnt, "--web", "0.0.0.0:0"]);
    assert!(said.contains("reachable from other machines"), "{said}");
    drop(web);
    assert_eq!(run(&["umount", &mnt]).code, 0);
    if require(&format!("{test}: drawn"), &[Need::Chromium]) {
        // The browser sees a file, so the figures come from a stub, and the time between them too:
        // several samples are shown before the page is looked at.
        let marked = "<script>const INTERVAL_MS = 100;";
        assert!(page.contains(marked));
        for (width, dark, step_ms) in [(1000, false, 10), (390, true, 99), (390, false, 61_700)] {
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
