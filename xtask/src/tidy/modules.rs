//! Every source file is reached: by a target of its package or by a `mod` of a reached file.

use std::collections::BTreeSet;

use syn::visit::Visit;

use super::{Finding, Tree};

pub fn check(tree: &Tree) -> Vec<Finding> {
    let packages: Vec<&str> =
        tree.files.keys().filter_map(|path| path.strip_suffix("Cargo.toml")).collect();
    let mut reached = BTreeSet::new();
    for package in &packages {
        for (path, _) in tree.rust_files() {
            if path.strip_prefix(package).is_some_and(is_target) {
                reach(tree, path, &mut reached);
            }
        }
    }
    let in_package = |path: &str| packages.iter().any(|p| !p.is_empty() && path.starts_with(p));
    tree.rust_files()
        .filter(|(path, _)| in_package(path) && !reached.contains(*path))
        .map(|(path, _)| {
            Finding::new(path, 0, "no `mod` reaches this file: name it in its parent or delete it")
        })
        .collect()
}

/// True if cargo finds this path of a package by itself.
fn is_target(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(
        parts.as_slice(),
        ["build.rs"]
            | ["src", "lib.rs" | "main.rs"]
            | ["src", "bin", _]
            | ["src", "bin", _, "main.rs"]
            | ["tests" | "benches" | "examples" | "fuzz_targets", _]
            | ["tests" | "benches" | "examples", _, "main.rs"]
    )
}

fn reach(tree: &Tree, path: &str, reached: &mut BTreeSet<String>) {
    let Some(text) = tree.files.get(path) else { return };
    if !reached.insert(path.to_owned()) {
        return;
    }
    let Ok(file) = syn::parse_file(text) else { return };
    let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
    // `lib.rs`, `main.rs`, `mod.rs` and target roots keep their children beside them.
    let own_dir = matches!(name, "lib.rs" | "main.rs" | "mod.rs")
        || path.contains("/tests/") && !dir.contains("/tests/")
        || path.contains("/benches/") && !dir.contains("/benches/")
        || dir.ends_with("/bin");
    let children =
        if own_dir { dir.to_owned() } else { format!("{dir}/{}", name.trim_end_matches(".rs")) };
    let mut mods = Mods { dir: dir.to_owned(), children, found: Vec::new() };
    mods.visit_file(&file);
    for candidate in mods.found {
        reach(tree, &candidate, reached);
    }
}

/// Collects the paths that the `mod name;` items of a file can mean.
struct Mods {
    dir: String,
    children: String,
    found: Vec<String>,
}

impl<'ast> Visit<'ast> for Mods {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let name = item.ident.to_string();
        if item.content.is_some() {
            let outer = self.children.clone();
            self.children = format!("{outer}/{name}");
            syn::visit::visit_item_mod(self, item);
            self.children = outer;
            return;
        }
        if let Some(path) = path_attribute(&item.attrs) {
            self.found.push(normal(&format!("{}/{path}", self.dir)));
        }
        self.found.push(format!("{}/{name}.rs", self.children));
        self.found.push(format!("{}/{name}/mod.rs", self.children));
    }
}

fn path_attribute(attributes: &[syn::Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    })
}

/// Takes `.` and `..` out of a relative path.
pub(super) fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_mod_is_dead() {
        let tree = Tree::of(&[
            ("crates/a/Cargo.toml", ""),
            ("crates/a/src/lib.rs", "mod b; #[cfg(test)] mod tests; mod c { mod d; }"),
            ("crates/a/src/b.rs", "mod e; #[path = \"../odd.rs\"] mod odd;"),
            ("crates/a/src/b/e.rs", ""),
            ("crates/a/src/c/d.rs", ""),
            ("crates/a/src/tests.rs", ""),
            ("crates/a/odd.rs", ""),
            ("crates/a/src/e.rs", "mod lost;"),
            ("crates/a/src/bin/tool.rs", ""),
            ("crates/a/tests/t.rs", "mod common;"),
            ("crates/a/tests/common/mod.rs", ""),
        ]);
        let dead: Vec<String> = check(&tree).into_iter().map(|f| f.path).collect();
        assert_eq!(dead, ["crates/a/src/e.rs"]);
    }
}
