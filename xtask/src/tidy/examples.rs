//! Crates whose documentation has no examples are not compiled for them.
//!
//! `cargo test --doc` compiles every library once more to look for examples. A crate without any
//! says `doctest = false`; one with examples must not, or they would not run.

use super::{Finding, Tree};

pub fn check(tree: &Tree) -> Vec<Finding> {
    let manifests = tree.files.iter().filter_map(|(path, text)| {
        let package = path.strip_suffix("Cargo.toml").filter(|dir| is_tested(dir))?;
        tree.files.contains_key(&format!("{package}src/lib.rs")).then_some((package, path, text))
    });
    manifests.filter_map(|(package, path, text)| finding(tree, package, path, text)).collect()
}

/// True for a crate of the main workspace.
fn is_tested(package: &str) -> bool {
    ["crates/", "lab/", "tests/"].iter().any(|folder| package.starts_with(folder))
}

fn finding(tree: &Tree, package: &str, path: &str, manifest: &str) -> Option<Finding> {
    let manifest: toml::Table = manifest.parse().ok()?;
    let doctest = manifest.get("lib").and_then(|lib| lib.get("doctest"));
    let is_off = doctest.and_then(toml::Value::as_bool) == Some(false);
    let src = format!("{package}src/");
    let mut sources = tree.rust_files().filter(|(path, _)| path.starts_with(&src));
    let example = sources.find_map(|(path, text)| Some((path, first_example(text)?)));
    match example {
        Some((path, line)) if is_off => {
            let text = "an example that is not run: take `doctest = false` out of the manifest";
            Some(Finding::new(path, line, text))
        }
        None if !is_off => {
            let text = "no example in its documentation: say `doctest = false` under [lib]";
            Some(Finding::new(path, 0, text))
        }
        _ => None,
    }
}

/// The line of the first block in doc comments that rustdoc takes for Rust.
fn first_example(text: &str) -> Option<usize> {
    let mut in_block = false;
    for (at, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let Some(line) = line.strip_prefix("//!").or_else(|| line.strip_prefix("///")) else {
            in_block = false;
            continue;
        };
        let Some(words) = line.trim_start().strip_prefix("```") else { continue };
        in_block = !in_block;
        if in_block && words.trim().split(',').all(is_rust) {
            return Some(at + 1);
        }
    }
    None
}

/// True for a word that may follow the fence of a Rust example.
fn is_rust(word: &str) -> bool {
    let known = ["", "rust", "no_run", "should_panic", "compile_fail", "ignore"];
    known.contains(&word.trim()) || word.trim().starts_with("edition")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(manifest: &str, source: &str) -> Vec<String> {
        let files = [("crates/core/a/Cargo.toml", manifest), ("crates/core/a/src/lib.rs", source)];
        check(&Tree::of(&files)).into_iter().map(|finding| finding.message).collect()
    }

    const OFF: &str = "[lib]\ndoctest = false\n";

    #[test]
    fn a_crate_without_examples_says_so() {
        let drawing = "//! ```text\n//! a -> b\n//! ```\n";
        assert!(found("", drawing)[0].contains("say `doctest = false`"));
        assert_eq!(found(OFF, drawing), [""; 0]);
    }

    #[test]
    fn an_example_is_run() {
        for fence in ["", "no_run", "rust,ignore"] {
            let example = format!("//! ```{fence}\n//! let a = 1;\n//! ```\n");
            assert!(found(OFF, &example)[0].contains("not run"), "{fence}");
            assert_eq!(found("", &example), [""; 0]);
        }
    }
}
