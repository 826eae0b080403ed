//! Crates that are published: those with a version in `[workspace.dependencies]`.
//!
//! A registry shows their description, readme, keywords and categories, and refuses a dependency
//! without a version. Every other crate says `publish = false`, so that none is published by
//! mistake.

use super::{Finding, Tree};

const FIELDS: [&str; 6] =
    ["description", "readme", "keywords", "categories", "license", "rust-version"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let Some(root) = tree.files.get("Cargo.toml") else { return findings };
    let published = names(root);
    for (path, text) in &tree.files {
        // What is not TOML is found by `arrows`.
        let manifest = text.parse::<toml::Table>().ok().filter(|_| path.ends_with("Cargo.toml"));
        let Some(manifest) = manifest else { continue };
        let Some(package) = manifest.get("package").and_then(toml::Value::as_table) else {
            continue;
        };
        let mut say = |message: String| findings.push(Finding::new(path, 0, message));
        let is_private = package.get("publish").and_then(toml::Value::as_bool) == Some(false);
        let name = package.get("name").and_then(toml::Value::as_str);
        if !published.iter().any(|known| Some(known.as_str()) == name) {
            if !is_private {
                say("add `publish = false`, or a version of the crate in the root's \
                     [workspace.dependencies]"
                    .to_owned());
            }
            continue;
        }
        if is_private {
            say("has a version in [workspace.dependencies] and `publish = false`: take one out"
                .to_owned());
        }
        for field in FIELDS.iter().filter(|field| !package.contains_key(**field)) {
            say(format!("is published and has no `{field}`: add it"));
        }
        for dependency in ours(&manifest).filter(|name| !published.contains(name)) {
            say(format!("is published and needs {dependency}, which is not: give it a version"));
        }
    }
    findings
}

/// Names of the published crates, from the text of the workspace's manifest.
pub fn names(root: &str) -> Vec<String> {
    let root = root.parse::<toml::Table>().expect("cargo has read it to build this program");
    let table = root.get("workspace").and_then(|workspace| workspace.get("dependencies"));
    let rows = table.and_then(toml::Value::as_table).into_iter().flatten();
    rows.filter(|(_, row)| row.get("path").is_some() && row.get("version").is_some())
        .map(|(name, _)| name.clone())
        .collect()
}

/// Crates of ours that a crate needs outside of its tests.
fn ours(manifest: &toml::Table) -> impl Iterator<Item = String> {
    let table = manifest.get("dependencies").and_then(toml::Value::as_table);
    let names = table.into_iter().flat_map(toml::Table::keys);
    names.filter(|name| name.starts_with("syncline")).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "[workspace.dependencies]\nsyncline-a = { path = \"a\", version = \"1\" }\n\
                        syncline-b = { path = \"b\" }\nserde = \"1\"\n";
    const WHOLE: &str = "[package]\nname = \"syncline-a\"\ndescription = \"-\"\nreadme = \"-\"\n\
                         license.workspace = true\nkeywords = []\ncategories = []\n\
                         rust-version = \"1\"\n";

    fn found(manifest: &str) -> Vec<String> {
        let tree = Tree::of(&[("Cargo.toml", ROOT), ("crates/core/a/Cargo.toml", manifest)]);
        check(&tree).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_published_crate_is_described() {
        assert_eq!(found(WHOLE), [""; 0]);
        assert!(found(&WHOLE.replace("readme = \"-\"\n", ""))[0].contains("no `readme`"));
        assert!(found(&format!("{WHOLE}publish = false\n"))[0].contains("take one out"));
    }

    #[test]
    fn a_published_crate_needs_published_crates() {
        let on = |name: &str| format!("{WHOLE}[dependencies]\n{name}.workspace = true\n");
        assert_eq!(found(&on("serde")), [""; 0]);
        assert!(found(&on("syncline-b"))[0].contains("syncline-b, which is not"));
        let dev = format!("{WHOLE}[dev-dependencies]\nsyncline-b.workspace = true\n");
        assert_eq!(found(&dev), [""; 0]);
    }

    #[test]
    fn other_crates_are_not_published() {
        let other = "[package]\nname = \"syncline-b\"\n";
        assert!(found(other)[0].contains("add `publish = false`"));
        assert_eq!(found(&format!("{other}publish = false\n")), [""; 0]);
    }
}
