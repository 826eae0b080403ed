//! Pages as a browser shows them: headless Chromium, asked what it drew.
//!
//! ```text
//!   page + errors.js + browser.js ──> a copy ──> chromium --dump-dom ──> JSON
//!            errors of scripts, texts of each chart that overlap or stick out, series without
//!            a key, colours, the text under the pointer
//! ```
//!
//! Each look is a process of its own with a time limit. Nothing is loaded from a network. A window
//! has 500 pixels at least, so the copy is in a frame of the width that is asked for.

use std::path::Path;
use std::process::Command;

use crate::env::which;

/// Notes errors of scripts, from the first one on.
const ERRORS: &str = "<script>window.seen={errors:[]};\
    addEventListener('error',(e)=>seen.errors.push(String(e.message)));\
    for(const of of ['error','warn']){const to=console[of].bind(console);\
    console[of]=(...a)=>{seen.errors.push(a.join(' '));to(...a)}}</script>";
const LOOK: &str = include_str!("browser.js");
/// Seconds of one look, at most.
const SECONDS_MAX: &str = "120";

/// Why there is no browser here, or nothing if there is one.
pub(crate) fn missing() -> Option<String> {
    which("chromium").is_none().then(|| "needs chromium; install chromium".to_owned())
}

/// Opens `page` in a window of this width; returns what was seen as a JSON object.
///
/// # Panics
/// If the page cannot be read or the browser does not end with an answer.
#[must_use]
pub fn look(page: &Path, width: u32, dark: bool) -> String {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let html = std::fs::read_to_string(page).expect("the page is there");
    let html = html.replacen("<head>", &format!("<head>{ERRORS}"), 1);
    // The last one: a library may have the word in a string.
    let (html, _) = html.rsplit_once("</body>").expect("a page has a body");
    let html = format!("{html}<script>{LOOK}</script></body></html>");
    assert!(html.contains("content=\"width=device-width\""), "a phone would lay it out for a desk");
    let frame = format!(
        "<!DOCTYPE html><meta name=\"color-scheme\" content=\"light dark\">\
         <body style=\"margin:0\"><iframe style=\"border:0;width:{width}px;height:1200px\" \
         srcdoc=\"{}\"></iframe>",
        html.replace('&', "&amp;").replace('"', "&quot;")
    );
    let copy = dir.path().join("page.html");
    std::fs::write(&copy, frame).expect("scratch space");
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", SECONDS_MAX, "chromium"]);
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]);
    command.arg(format!("--user-data-dir={}", dir.path().join("profile").display()));
    command.arg(format!("--window-size={},1200", width.max(500)));
    if dark {
        command.arg("--blink-settings=preferredColorScheme=0");
    }
    command.args(["--virtual-time-budget=10000", "--dump-dom"]);
    let output = command.arg(format!("file://{}", copy.display())).output().expect("timeout runs");
    let dom = String::from_utf8_lossy(&output.stdout);
    let seen = dom.split_once("<pre id=\"seen\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let (seen, _) = seen.unwrap_or_else(|| {
        let said = String::from_utf8_lossy(&output.stderr);
        panic!("chromium gave no answer for {}: {}\n{said}", page.display(), output.status)
    });
    seen.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}
