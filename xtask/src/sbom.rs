//! `sbom PACKAGE...`: what is linked into what is published, as CycloneDX 1.5.
//!
//! Every package that the given ones need on this machine's target, without what only builds or
//! tests them, each with version, licence, checksum of the registry and what it needs itself. From
//! `cargo metadata` and `Cargo.lock`; the same tree gives the same bytes. What a package has in its
//! own directory is under `package.metadata.vendored` in its manifest.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, ExitCode};

use serde_json::{Value, json};

/// Prints the document.
pub fn run(root: &Path, packages: &[&str]) -> ExitCode {
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).unwrap_or_default();
    let document = metadata(root).and_then(|metadata| document(&metadata, &lock, packages));
    match document {
        Ok(document) => {
            println!("{document:#}");
            ExitCode::SUCCESS
        }
        Err(text) => {
            eprintln!("sbom: {text}");
            ExitCode::FAILURE
        }
    }
}

fn metadata(root: &Path) -> Result<Value, String> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(crate::cargo())
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", &target])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cargo cannot be run: {error}; install Rust"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cargo metadata failed: {said}; correct the manifests"));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Dependencies that each package id needs to run.
fn needs(metadata: &Value) -> BTreeMap<&str, Vec<&str>> {
    let nodes = metadata.get("resolve").map_or(&[][..], |resolve| list(resolve, "nodes"));
    let runs = |dependency: &&Value| {
        list(dependency, "dep_kinds").iter().any(|kind| kind.get("kind").is_none_or(Value::is_null))
    };
    let of = |node| list(node, "deps").iter().filter(runs).map(|dep| text(dep, "pkg")).collect();
    nodes.iter().map(|node| (text(node, "id"), of(node))).collect()
}

/// `checksum` of each name and version in `Cargo.lock`.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let lock: toml::Table = lock.parse().unwrap_or_default();
    let packages = lock.get("package").and_then(toml::Value::as_array).cloned().unwrap_or_default();
    let entry = |package: &toml::Value| {
        let field = |key: &str| Some(package.get(key)?.as_str()?.to_owned());
        Some(((field("name")?, field("version")?), field("checksum")?))
    };
    packages.iter().filter_map(entry).collect()
}

fn purl(package: &Value) -> String {
    format!("pkg:cargo/{}@{}", text(package, "name"), text(package, "version"))
}

fn component(package: &Value, checksum: Option<&String>) -> Value {
    let mut out = json!({
        "type": "library",
        "bom-ref": purl(package),
        "purl": purl(package),
        "name": text(package, "name"),
        "version": text(package, "version"),
        "licenses": [{"expression": text(package, "license").replace('/', " OR ")}],
    });
    if let Some(checksum) = checksum {
        out["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    out
}

/// Files of others that the package carries, by its manifest.
fn vendored(package: &Value) -> Vec<Value> {
    let entries = package.get("metadata").map_or(&[][..], |metadata| list(metadata, "vendored"));
    let component = |one: &Value| {
        json!({
            "type": "library",
            "bom-ref": text(one, "purl"),
            "purl": text(one, "purl"),
            "name": text(one, "name"),
            "version": text(one, "version"),
            "licenses": [{"expression": text(one, "license")}],
            "hashes": [{"alg": "SHA-256", "content": text(one, "sha256")}],
        })
    };
    entries.iter().map(component).collect()
}

fn document(metadata: &Value, lock: &str, wanted: &[&str]) -> Result<Value, String> {
    let packages: BTreeMap<&str, &Value> =
        list(metadata, "packages").iter().map(|package| (text(package, "id"), package)).collect();
    let mut waiting = Vec::new();
    for name in wanted {
        let found = packages.iter().find(|(_, package)| text(package, "name") == *name);
        let (id, _) =
            found.ok_or_else(|| format!("no package {name}; name one of the workspace"))?;
        waiting.push(*id);
    }
    let (needs, checksums) = (needs(metadata), checksums(lock));
    let mut reached = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        if reached.insert(id) {
            waiting.extend(needs.get(id).into_iter().flatten());
        }
    }
    let (mut components, mut dependencies) = (Vec::new(), Vec::new());
    for id in &reached {
        let Some(package) = packages.get(id) else { continue };
        let key = (text(package, "name").to_owned(), text(package, "version").to_owned());
        components.push(component(package, checksums.get(&key)));
        let below = needs.get(id).into_iter().flatten().filter_map(|id| packages.get(id));
        let mut below: BTreeSet<String> = below.map(|package| purl(package)).collect();
        for one in vendored(package) {
            let name = text(&one, "purl").to_owned();
            dependencies.push(json!({"ref": name, "dependsOn": []}));
            below.insert(name);
            components.push(one);
        }
        dependencies.push(json!({"ref": purl(package), "dependsOn": below}));
    }
    let by_name = |a: &Value, b: &Value| text(a, "purl").cmp(text(b, "purl"));
    components.sort_by(by_name);
    dependencies.sort_by(|a, b| text(a, "ref").cmp(text(b, "ref")));
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {
            "type": "application",
            "bom-ref": "syncline",
            "name": "syncline",
            "version": env!("CARGO_PKG_VERSION"),
        }},
        "components": components,
        "dependencies": dependencies,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, licence: &str) -> Value {
        let file = json!({"name": "lib", "version": "2", "purl": "pkg:npm/lib@2",
            "license": "Apache-2.0", "sha256": "def"});
        let metadata = (name == "low").then(|| json!({"vendored": [file]}));
        let id = format!("id-{name}");
        let version = "1.0.0";
        json!({"metadata": metadata, "id": id, "name": name, "version": version,
            "license": licence})
    }

    #[test]
    fn what_is_linked_is_listed_and_nothing_else() {
        let needs = |id: &str, kind: Value| json!({"pkg": id, "dep_kinds": [{"kind": kind}]});
        let metadata = json!({
            "packages": [package("top", "MIT"), package("low", "MIT/Apache-2.0"),
                package("build", "MIT"), package("other", "MIT")],
            "resolve": {"nodes": [
                {"id": "id-top", "deps": [needs("id-low", Value::Null),
                    needs("id-build", json!("build"))]},
                {"id": "id-low", "deps": []},
            ]},
        });
        let lock = "[[package]]\nname = \"low\"\nversion = \"1.0.0\"\nchecksum = \"abc\"\n";
        let document = document(&metadata, lock, &["top"]).unwrap();
        let names: Vec<&str> =
            list(&document, "components").iter().map(|one| text(one, "name")).collect();
        assert_eq!(names, ["low", "top", "lib"]);
        assert_eq!(document["components"][0]["hashes"][0]["content"], "abc");
        assert_eq!(document["components"][2]["hashes"][0]["content"], "def");
        assert_eq!(document["dependencies"][0]["dependsOn"], json!(["pkg:npm/lib@2"]));
        assert_eq!(document["components"][0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(document["dependencies"][1]["dependsOn"], json!(["pkg:cargo/low@1.0.0"]));
        assert!(super::document(&metadata, lock, &["nothing"]).is_err());
    }
}
