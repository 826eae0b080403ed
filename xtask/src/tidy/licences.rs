//! Dependencies have the licences that `deny.toml` allows, also on a machine without cargo-deny.

use std::path::Path;
use std::process::Command;

use super::Finding;

pub fn check(root: &Path) -> Vec<Finding> {
    findings(root).unwrap_or_else(|error| vec![Finding::new("Cargo.toml", 0, error)])
}

fn findings(root: &Path) -> Result<Vec<Finding>, String> {
    let text = std::fs::read_to_string(root.join("deny.toml"));
    let deny: toml::Table =
        text.map_err(|e| e.to_string())?.parse().map_err(|e| format!("deny.toml: {e}"))?;
    let allowed = deny.get("licenses").and_then(|table| table.get("allow")?.as_array());
    let allowed: Vec<&str> = allowed.into_iter().flatten().filter_map(|v| v.as_str()).collect();
    let output = Command::new(crate::cargo())
        .args(["metadata", "--format-version", "1"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .args(["--filter-platform", "wasm32-unknown-unknown"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let document: serde_json::Value =
        serde_json::from_slice(&output.stdout).map_err(|e| format!("cargo metadata: {e}"))?;
    let packages = document.get("packages").and_then(|packages| packages.as_array());
    let packages = packages.filter(|packages| !packages.is_empty());
    let packages = packages.ok_or("cargo metadata lists no packages")?;
    Ok(packages.iter().filter_map(|package| finding(package, &allowed)).collect())
}

fn finding(package: &serde_json::Value, allowed: &[&str]) -> Option<Finding> {
    let text = |key: &str| package.get(key).and_then(|v| v.as_str()).unwrap_or_default();
    let licence = text("license");
    if is_met(licence, allowed) {
        return None;
    }
    let message = format!(
        "dependency {} {} has licence \"{licence}\": use another crate, or add the licence to \
         deny.toml if it is permissive",
        text("name"),
        text("version")
    );
    Some(Finding::new("Cargo.toml", 0, message))
}

/// True if an SPDX expression can be met with allowed licences: one alternative, all its terms.
/// Parentheses appear only around alternatives within an AND; then every term has to be allowed.
fn is_met(expression: &str, allowed: &[&str]) -> bool {
    let term = |term: &str| allowed.contains(&term.trim_matches([' ', '(', ')']));
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
        let allowed = ["MIT", "Apache-2.0", "ISC", "Unlicense"];
        for good in ["MIT", "MIT OR GPL-2.0", "Unlicense/MIT", "(MIT OR Apache-2.0) AND ISC"] {
            assert!(is_met(good, &allowed), "{good}");
        }
        for bad in ["", "GPL-3.0", "MIT AND GPL-2.0", "(MIT OR ISC) AND GPL-2.0", "MPL-2.0"] {
            assert!(!is_met(bad, &allowed), "{bad}");
        }
    }
}
