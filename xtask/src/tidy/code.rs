//! Rules on Rust code, checked on syntax trees and tokens, so that text in strings and comments
//! does not count.

use proc_macro2::{Delimiter, LineColumn, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::Visit;

use super::{Finding, Tree, is_test_file};

/// Crates with an interface that needs unsafe code; the others forbid it.
const UNSAFE_CRATES: [(&str, &str); 11] = [
    ("crates/core/device/", "io_uring and block device ioctls"),
    ("crates/libs/recorder/", "io_uring, priorities, sync_file_range"),
    ("crates/adapters/fuse/", "policies of threads, io_uring, the C library's heap"),
    ("crates/adapters/export/", "io_uring and shared memory of ublk"),
    ("crates/adapters/wasm/", "imports and exports of WebAssembly"),
    ("crates/libs/syncline-c/", "C interface"),
    ("crates/libs/preload/", "functions in place of libc's"),
    ("crates/libs/sqlite/", "SQLite's C interface"),
    ("lab/src/bin/web/", "imports and exports of WebAssembly"),
    ("tests/testkit/", "maps the files it tests"),
    ("tests/fuzz_targets/", "a program that attacks"),
];

/// Path prefixes of code that may use clock, threads, files and environment: adapters, and below
/// them the files that are the one place for it.
const SYSTEM_USERS: &[(&str, &str)] = &[
    ("xtask/", "a developer's tool"),
    ("crates/adapters/cli/", "adapter"),
    ("tests/testkit/src/posix/", "a developer's tool"),
    ("tests/testkit/src/bin/", "a developer's tool"),
    ("crates/adapters/fuse/", "adapter"),
    ("crates/adapters/export/", "adapter"),
    ("crates/adapters/image/", "adapter"),
    ("crates/adapters/nfs/", "adapter"),
    ("lab/src/bin/", "adapter"),
    ("lab/src/experiments/", "adapter"),
    ("crates/adapters/control/src/governor.rs", "a thread for policies"),
    ("crates/adapters/control/src/desktop.rs", "asks the services of the desktop"),
    ("crates/adapters/control/src/sensor.rs", "runs a program of the user, with a deadline"),
    ("crates/adapters/control/src/socket.rs", "answers programs, with deadlines"),
    ("crates/libs/preload/", "adapter"),
    ("crates/libs/syncline-c/", "adapter"),
    ("crates/libs/syncline-py/", "adapter"),
    ("crates/libs/sqlite/src/extension/", "adapter"),
    ("crates/libs/sqlite/examples/", "programs"),
    ("crates/libs/syncline/", "an adapter for programs: a thread, mke2fs, processes"),
    ("crates/libs/recorder/src/os/", "the adapter part of the recorder"),
    ("lab/src/evaluate/os/", "traces played on real devices"),
    ("lab/build.rs", "a build script"),
    ("lab/src/replay/directory.rs", "replay in a directory, in real time"),
    ("crates/core/device/src/clock.rs", "the wall clock"),
    ("crates/core/device/src/file", "the file device"),
    ("crates/core/device/src/mirror.rs", "image files of crash states for stock judges"),
    ("crates/libs/flashlite/src/file.rs", "a log in a file; all else goes through its seam"),
    ("lab/src/bench/target/directory.rs", "workloads in a directory, in real time"),
    ("lab/src/bench/image.rs", "runs mke2fs"),
    ("lab/src/reproduce/finished.rs", "finished runs of a long session, in a file"),
    ("lab/examples/", "programs"),
];

/// Names of the system, their last parts as they are imported, and what to use in their place.
const SYSTEM_NAMES: [(&[&str], &str); 11] = [
    (&["Instant"], "take a syncline_device::Clock"),
    (&["SystemTime"], "take a syncline_device::Clock"),
    (&["std", "thread"], "let the adapter start threads and call tick(now)"),
    (&["std", "fs"], "take a BlockDevice, or let the adapter read the file"),
    (&["std", "env"], "take a parameter; the adapter reads the environment"),
    (&["std", "process"], "let the adapter run programs"),
    (&["std", "net"], "let the adapter talk to the network"),
    (&["rand", "rng"], "take a seeded generator"),
    (&["thread_rng"], "take a seeded generator"),
    (&["from_os_rng"], "take a seeded generator"),
    (&["OsRng"], "take a seeded generator"),
];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.rust_files() {
        match syn::parse_file(text) {
            Ok(file) => check_file(path, text, &file, &mut findings),
            Err(error) => {
                let line = error.span().start().line;
                findings.push(Finding::new(path, line, format!("not Rust: {error}")));
            }
        }
    }
    findings
}

fn check_file(path: &str, text: &str, file: &syn::File, findings: &mut Vec<Finding>) {
    let mut items = Items::default();
    items.visit_file(file);
    if is_crate_root(path) {
        forbids_unsafe(path, file, findings);
    }
    let Ok(tokens) = text.parse::<TokenStream>() else { return };
    let mut flat = Vec::new();
    flatten(tokens, &mut flat);
    let scan = Scan {
        path,
        tokens: &flat,
        tests: if is_test_file(path) { vec![(0, usize::MAX)] } else { items.tests },
    };
    scan.run(findings);
}

fn is_crate_root(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(
        parts.as_slice(),
        ["crates" | "lab", _, _, "src", "lib.rs" | "main.rs"]
            | ["lab", "src", "lib.rs"]
            | ["lab", "src", "bin", _, "main.rs"]
            | ["tests", _, "src", "lib.rs" | "main.rs"]
            | ["xtask", "src", "main.rs"]
    )
}

fn forbids_unsafe(path: &str, file: &syn::File, findings: &mut Vec<Finding>) {
    if UNSAFE_CRATES.iter().any(|(prefix, _)| path.starts_with(prefix)) {
        return;
    }
    let forbids = |attribute: &syn::Attribute| match &attribute.meta {
        syn::Meta::List(list) => {
            list.path.is_ident("forbid") && list.tokens.to_string().contains("unsafe_code")
        }
        _ => false,
    };
    if !file.attrs.iter().any(forbids) {
        let message = "add #![forbid(unsafe_code)], or list the crate in code.rs with its reason";
        findings.push(Finding::new(path, 0, message));
    }
}

/// The lines of test code, first and last of each item.
#[derive(Default)]
struct Items {
    tests: Vec<(usize, usize)>,
}

impl Items {
    fn test_item(&mut self, attributes: &[syn::Attribute], item: &impl Spanned) {
        if attributes.iter().any(is_test_attribute) {
            let span = item.span();
            self.tests.push((span.start().line, span.end().line));
        }
    }
}

fn is_test_attribute(attribute: &syn::Attribute) -> bool {
    match &attribute.meta {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            let words = list.tokens.to_string();
            let mut words = words.split(|c: char| !c.is_alphanumeric() && c != '_');
            words.clone().any(|word| word == "test") && !words.any(|word| word == "not")
        }
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Items {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.test_item(&item.attrs, item);
        syn::visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.test_item(&item.attrs, item);
        syn::visit::visit_impl_item_fn(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.test_item(&item.attrs, item);
        syn::visit::visit_item_mod(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        self.test_item(&item.attrs, item);
        syn::visit::visit_item_impl(self, item);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.test_item(&item.attrs, item);
    }
}

/// A token without its tree: identifiers and literals as they are, groups as their brackets.
struct Token {
    text: String,
    start: LineColumn,
}

fn flatten(tokens: TokenStream, flat: &mut Vec<Token>) {
    for tree in tokens {
        let start = tree.span().start();
        let TokenTree::Group(group) = tree else {
            flat.push(Token { text: tree.to_string(), start });
            continue;
        };
        let (open, close) = match group.delimiter() {
            Delimiter::Parenthesis => ("(", ")"),
            Delimiter::Brace => ("{", "}"),
            Delimiter::Bracket => ("[", "]"),
            Delimiter::None => ("", ""),
        };
        flat.push(Token { text: open.to_owned(), start });
        flatten(group.stream(), flat);
        flat.push(Token { text: close.to_owned(), start: group.span_close().start() });
    }
}

/// The token rules on one file.
struct Scan<'a> {
    path: &'a str,
    tokens: &'a [Token],
    /// Lines of test code, first to last.
    tests: Vec<(usize, usize)>,
}

impl Scan<'_> {
    fn run(&self, findings: &mut Vec<Finding>) {
        let system_user = SYSTEM_USERS.iter().any(|(prefix, _)| self.path.starts_with(prefix));
        for (at, token) in self.tokens.iter().enumerate() {
            let line = token.start.line;
            let mut say = |message: String| findings.push(Finding::new(self.path, line, message));
            let is = |pattern: &[&str]| self.is(at, pattern);
            let lower = token.text.to_lowercase();
            if !self.path.starts_with("xtask/")
                && !self.path.starts_with("tests/testkit/")
                && (lower.starts_with("\"skip ") || lower.starts_with("\"skipp"))
            {
                say("a skip that only prints is not counted: call syncline_testkit::skip or \
                     require"
                    .to_owned());
            }
            if self.tests.iter().any(|(first, last)| (*first..=*last).contains(&line)) {
                continue;
            }
            if is(&[".", "unwrap", "("]) {
                say("unwrap() outside of tests: return the error, or expect(\"why it cannot \
                     fail\"); a file of tests is called tests.rs or ends in _tests.rs"
                    .to_owned());
            }
            if is(&[".", "expect", "("]) {
                self.reason(at, &mut say);
            }
            if !system_user {
                self.system(at, &mut say);
            }
        }
    }

    fn is(&self, at: usize, pattern: &[&str]) -> bool {
        let tokens = self.tokens[at..].iter().map(|token| token.text.as_str());
        tokens.take(pattern.len()).eq(pattern.iter().copied())
    }

    /// A literal text in `expect` is a reason, not a word.
    fn reason(&self, at: usize, say: &mut impl FnMut(String)) {
        let Some(argument) = self.tokens.get(at + 3) else { return };
        if argument.text.starts_with('"') && argument.text.split_whitespace().count() < 3 {
            say(format!("expect({}) gives no reason: say why it cannot fail", argument.text));
        }
    }

    fn system(&self, at: usize, say: &mut impl FnMut(String)) {
        for (name, instead) in SYSTEM_NAMES {
            let found = match name {
                [one] => self.is(at, &[one]),
                [first, second] => {
                    self.is(at, &[first, ":", ":", second])
                        || self.is(at, &[first, ":", ":", "{"]) && self.group_has(at + 3, second)
                }
                _ => false,
            };
            if found {
                say(format!(
                    "{} is not for this layer: {instead} (exceptions are listed in xtask's \
                     code.rs)",
                    name.join("::")
                ));
            }
        }
    }

    /// True if the use group that opens at `open` has `name` as the first part of a member.
    fn group_has(&self, open: usize, name: &str) -> bool {
        let mut depth = 0_usize;
        for (before, token) in self.tokens[open..].iter().zip(&self.tokens[open + 1..]) {
            match before.text.as_str() {
                "{" => depth += 1,
                "}" => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 {
                return false;
            }
            if depth == 1 && matches!(before.text.as_str(), "{" | ",") && token.text == name {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let tree = Tree::of(&[(path, text)]);
        check(&tree).into_iter().map(|f| format!("{}: {}", f.line, f.message)).collect()
    }

    fn one(text: &str, start: &str) {
        let said = found("crates/core/fs/src/a.rs", text);
        assert!(said.len() == 1 && said[0].starts_with(start), "{text}\n{said:?}");
    }

    fn none(text: &str) {
        assert_eq!(found("crates/core/fs/src/a.rs", text), [""; 0], "{text}");
    }

    #[test]
    fn unwrap_and_expect() {
        one("fn a(x: Option<u8>) {\n x\n .unwrap();\n }", "3: unwrap()");
        one("fn a(x: Option<u8>) { println!(\"{}\", x.unwrap()); }", "1: unwrap()");
        one("fn a(x: Option<u8>) { x.expect(\"some\"); }", "1: expect(\"some\")");
        none("fn a(x: Option<u8>) { x.expect(\"set three lines above\"); x.unwrap_or(1); }");
        none("#[cfg(test)]\nmod tests {\n fn a(x: Option<u8>) { x.unwrap(); }\n}");
        none("#[test]\nfn a() { None::<u8>.unwrap(); }");
        one("#[cfg(not(test))]\nfn a() { None::<u8>.unwrap(); }", "2: unwrap()");
        assert_eq!(
            found("crates/core/fs/tests/a.rs", "fn a(x: Option<u8>) { x.unwrap(); }").len(),
            0
        );
    }

    #[test]
    fn system_names() {
        one("use std::time::Instant;", "1: Instant is not for this layer: take a syncline_device");
        one("use std::{fmt, fs::File};", "1: std::fs");
        one("use std::{fmt::{Debug, Write}, thread};", "1: std::thread");
        one("fn a() { std::thread::sleep(d) }", "1: std::thread");
        one("fn a() { std::env::var(x); }", "1: std::env");
        one("fn a() { rand::rng(); }", "1: rand::rng");
        none("use std::{fmt::{fs, env}, sync::Arc};");
        none("#[cfg(test)]\nmod tests {\n use std::fs;\n}");
        none("fn a() { self.fs.thread(); }");
        let text = "use std::time::Instant;";
        assert_eq!(found("crates/core/device/src/clock.rs", text), [""; 0]);
        assert_eq!(found("crates/core/fs/tests/a.rs", text), [""; 0]);
    }

    #[test]
    fn crate_roots_forbid_unsafe_code() {
        assert_eq!(found("crates/core/fs/src/lib.rs", "#![forbid(unsafe_code)]"), [""; 0]);
        assert_eq!(found("crates/core/fs/src/lib.rs", "//! Docs.").len(), 1);
        assert_eq!(found("crates/core/device/src/lib.rs", "//! Docs."), [""; 0]);
    }

    #[test]
    fn skips_are_counted() {
        one("#[test]\nfn a() { println!(\"skipped: no root\"); }", "2: a skip that only prints");
        one("#[test]\nfn a() { eprintln!(\"SKIP a: no root\"); }", "2: a skip that only prints");
        none("#[test]\nfn a() { skip(\"a\", \"needs root\"); let skipped = 1; }");
    }

    #[test]
    fn what_is_not_rust_is_said() {
        one("fn a( {", "1: not Rust");
    }
}
