//! Dependencies have permissive licences. `deny.toml` says the same to cargo-deny, which not every
//! machine has; the two lists are kept equal by a test.

use std::path::Path;
use std::process::Command;

use super::Finding;

const ALLOWED: [&str; 12] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

pub fn check(root: &Path) -> Vec<Finding> {
    let output = Command::new(crate::cargo())
        .args(["metadata", "--format-version", "1"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(root)
        .output();
    let document = match output {
        Ok(output) if output.status.success() => serde_json::from_slice(&output.stdout),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return vec![Finding::new("Cargo.toml", 0, format!("cargo metadata: {said}"))];
        }
        Err(error) => return vec![Finding::new("Cargo.toml", 0, format!("cargo: {error}"))],
    };
    let document: serde_json::Value = document.unwrap_or_default();
    let packages = document.get("packages").and_then(|p| p.as_array());
    let packages = packages.map(Vec::as_slice).unwrap_or_default();
    if packages.is_empty() {
        return vec![Finding::new("Cargo.toml", 0, "cargo metadata lists no packages")];
    }
    packages.iter().filter_map(package).collect()
}

fn package(package: &serde_json::Value) -> Option<Finding> {
    let text = |key: &str| package.get(key).and_then(|v| v.as_str()).unwrap_or_default();
    let licence = text("license");
    if permissive(licence) {
        return None;
    }
    let message = format!(
        "dependency {} {} has licence \"{licence}\": use another crate, or add the licence to \
         licences.rs and deny.toml if it is permissive",
        text("name"),
        text("version")
    );
    Some(Finding::new("Cargo.toml", 0, message))
}

/// True if an SPDX expression can be met with allowed licences: one alternative, all its terms.
/// Parentheses appear only around alternatives within an AND; then every term has to be allowed.
fn permissive(expression: &str) -> bool {
    let term = |term: &str| ALLOWED.contains(&term.trim_matches([' ', '(', ')']));
    let expression = expression.replace('/', " OR ");
    if expression.contains('(') {
        let conjuncts = expression.split(" AND ");
        return conjuncts.into_iter().all(|part| part.split(" OR ").any(term));
    }
    expression.split(" OR ").any(|choice| choice.split(" AND ").all(term))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions() {
        for good in ["MIT", "MIT OR GPL-2.0", "Unlicense/MIT", "(MIT OR Apache-2.0) AND ISC"] {
            assert!(permissive(good), "{good}");
        }
        for bad in ["", "GPL-3.0", "MIT AND GPL-2.0", "(MIT OR ISC) AND GPL-2.0", "MPL-2.0"] {
            assert!(!permissive(bad), "{bad}");
        }
    }

    #[test]
    fn cargo_deny_allows_the_same() {
        let text = std::fs::read_to_string(crate::root().join("deny.toml")).unwrap();
        let table: toml::Table = text.parse().unwrap();
        let allowed = table["licenses"]["allow"].as_array().unwrap();
        let allowed: Vec<&str> = allowed.iter().map(|v| v.as_str().unwrap()).collect();
        assert_eq!(allowed, ALLOWED);
    }
}
