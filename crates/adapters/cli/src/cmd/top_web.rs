//! `top --web`, `serve --web`: the picture of `top` as a page that renews itself, for browsers of
//! this machine.
//!
//! ```text
//!   this thread: a document each interval -> JSON        /           the page, with its charts
//!                a request -> a thread that answers      /live.json  the newest figures
//!                                                        /metrics    the status for Prometheus
//! ```
//!
//! Only loopback addresses are listened on, and only requests that name one as their host are
//! answered: a page of another site cannot read it through a name that it makes point here. Answers
//! to slow clients are bounded by [`ANSWERS_MAX`]. Tested in `tests/it/top.rs`, `serve.rs`.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tiny_http::{Header, Request, Response, Server};

use super::top::{Read, Seen};
use crate::error::{Failure, Result};
use crate::format::Out;
use crate::version;

/// Poll interval for Ctrl-C.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Answers under way at once; a client that finds them taken is refused.
const ANSWERS_MAX: usize = 8;

/// The page: an empty frame that fetches figures and draws them. `@NAME@` is filled in.
const PAGE: &str = include_str!("top_web.html");
const SCRIPT: &str = include_str!("top_web.js");

/// The page; it fetches `live.json` from its own server once an `interval`.
///
/// The document has `what`, `warning`, `bars` (name, text, ratio), `figures` (name, text), `rates`
/// (name, value or null) and `files` (name, written, read, syncs).
fn page(title: &str, interval: Duration) -> String {
    let about = [version::build(), version::command_line(), version::host(), version::date()];
    PAGE.replace("@TITLE@", &escaped(title))
        .replace("@ABOUT@", &about.map(|line| escaped(&line)).join("<br>"))
        .replace("@INTERVAL@", &interval.as_millis().to_string())
        .replace("@SCRIPT@", SCRIPT)
}

/// Text as it stands in HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('@', "&#64;")
}

/// Numbers of a status in Prometheus' text format, named by their paths: `syncline_cache_hits 7`.
/// Lists of files and other state are left out.
fn metrics(value: &Value, name: &str, out: &mut String) {
    match value {
        Value::Object(object) => object.iter().for_each(|(key, inner)| {
            let safe = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
            metrics(inner, &format!("{name}_{}", key.chars().map(safe).collect::<String>()), out);
        }),
        Value::Number(number) => out.push_str(&format!("{name} {number}\n")),
        Value::Bool(set) => out.push_str(&format!("{name} {}\n", u8::from(*set))),
        _ => {}
    }
}

/// A port of this machine on which nothing is answered yet.
pub(super) struct Web {
    server: Server,
    address: SocketAddr,
}

impl Web {
    pub(super) fn bind(address: SocketAddr) -> Result<Web> {
        if !address.ip().is_loopback() {
            let text =
                format!("{address} is reachable from other machines; give one like 127.0.0.1:0");
            return Err(Failure::Usage(text));
        }
        let server = Server::http(address).map_err(|err| {
            let why = syncline_image::sentence(&err.to_string());
            Failure::Failed(format!("{address}: {why}; give another port, or 0 for a free one"))
        })?;
        let address = server.server_addr().to_ip().unwrap_or(address);
        Ok(Web { server, address })
    }

    /// Serves the page about `shown` until `ends` says so or `read` fails.
    pub(super) fn run(
        self,
        shown: &Path,
        interval: Duration,
        read: Read<'_>,
        ends: &dyn Fn() -> bool,
    ) -> Result<()> {
        let Web { server, address } = self;
        let mut seen = Seen::first(read)?;
        let mut out = Out::new();
        out.text(format!("http://{address}/ shows {} until Ctrl-C\n", shown.display()))?;
        out.flush()?;
        let title = shown.display().to_string();
        let page: Arc<str> = page(&title, interval).into();
        let mut live: Arc<str> = seen.view(shown).document().to_string().into();
        let answers = Arc::new(());
        while !ends() {
            if seen.at.elapsed() >= interval {
                seen.again(read)?;
                live = seen.view(shown).document().to_string().into();
            }
            let left = interval.saturating_sub(seen.at.elapsed());
            let asked = server.recv_timeout(left.min(POLL_INTERVAL));
            let asked =
                asked.map_err(|err| Failure::Failed(format!("{address}: {err}; try again")))?;
            let Some(request) = asked else { continue };
            let found = match request.url() {
                _ if Arc::strong_count(&answers) > ANSWERS_MAX => Err(503),
                _ if !is_local(&request) => Err(403),
                "/" => Ok((Arc::clone(&page), "text/html; charset=utf-8")),
                "/live.json" => Ok((Arc::clone(&live), "application/json")),
                "/metrics" => {
                    let mut text = String::new();
                    metrics(&seen.document, "syncline", &mut text);
                    Ok((text.into(), "text/plain; version=0.0.4"))
                }
                _ => Err(404),
            };
            let taken = found.is_ok().then(|| Arc::clone(&answers));
            // A refusal, too, waits for what the client has announced to send.
            std::thread::spawn(move || {
                match found {
                    Ok((text, kind)) => answer(request, &text, kind),
                    Err(code) => refuse(request, code),
                }
                drop(taken);
            });
        }
        Ok(())
    }
}

/// Returns whether a request was sent to this machine by one of its own names.
fn is_local(request: &Request) -> bool {
    let host = request.headers().iter().find(|header| header.field.equiv("Host"));
    let host = host.map_or("", |header| header.value.as_str());
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    ["127.0.0.1", "localhost", "[::1]"].contains(&name)
}

fn refuse(request: Request, code: u16) {
    // A client that is gone needs no answer.
    let _ = request.respond(Response::empty(code));
}

fn answer(request: Request, text: &str, kind: &str) {
    let mut response = Response::from_string(text);
    for (name, value) in [("Content-Type", kind), ("Cache-Control", "no-store")] {
        if let Ok(header) = Header::from_bytes(name, value) {
            response.add_header(header);
        }
    }
    // A client that is gone needs no answer.
    let _ = request.respond(response);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_status_are_metrics() {
        let status = serde_json::json!({"a": {"b-c": 1.5, "on": true, "x": null}, "files": [1]});
        let mut text = String::new();
        metrics(&status, "syncline", &mut text);
        assert_eq!(text, "syncline_a_b_c 1.5\nsyncline_a_on 1\n");
    }

    #[test]
    fn the_page_escapes_its_title_and_loads_only_the_figures() {
        let html = page("/mnt/<a>@SCRIPT@", Duration::from_secs(1));
        assert!(html.contains("<h1>/mnt/&lt;a&gt;&#64;SCRIPT&#64;</h1>"), "{html}");
        assert!(html.contains("INTERVAL_MS = 1000;"));
        let loads = html.replace("http://www.w3.org/2000/svg", "");
        assert!(!loads.contains("http") && !loads.contains("src=") && loads.contains("live.json"));
    }
}
