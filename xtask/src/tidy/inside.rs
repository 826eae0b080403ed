//! Arrows inside a crate: which module may use which, and no large circles.
//!
//! An arrow is a path that begins with `crate`, `super` or `self` and leads into another file of
//! the crate; a name that a module re-exports leads to where it comes from. Test code does not
//! count, and neither does the name after `impl crate::`: methods of a public type stand beside the
//! code that they call, and the paths in them are arrows of that file.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::Visit;

use super::{Finding, Tree, is_test_file};

/// Crates with a declared order of their modules, lowest first: a module uses lower ones only. A
/// row holds from the time on when all of its modules exist.
const ORDERS: &[(&str, &[&str])] = &[
    (
        "crates/core/fs",
        &[
            "ranks",
            "error",
            "options",
            "time",
            "store",
            "pages",
            "incore",
            "space",
            "map",
            "inode",
            "data",
            "names",
            "fast_commit",
            "mount",
            "volume",
        ],
    ),
    (
        "lab",
        &[
            "error",
            "observer",
            "trace",
            "report",
            "latency",
            "bench",
            "probe",
            "evaluate",
            "replay",
            "reproduce",
            "experiments",
        ],
    ),
];

/// Crates in which a circle of modules has at most [`CIRCLE_FILES_MAX`] files.
const NO_CIRCLES: &[&str] =
    &["crates/core/buffer", "crates/core/cache", "crates/core/device", "crates/core/fs", "xtask"];

const CIRCLE_FILES_MAX: usize = 4;

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (package, order) in ORDERS {
        ordered(&Crate::read(tree, package), order, &mut findings);
    }
    for package in NO_CIRCLES {
        circles(&Crate::read(tree, package), &mut findings);
    }
    findings
}

/// Path of a module from the crate's root.
type Module = Vec<String>;

/// One file that is a module.
#[derive(Default)]
struct Source {
    path: String,
    /// Absolute paths used, with the line.
    uses: Vec<(Module, usize)>,
    /// Names that `use` brings in, with their absolute paths.
    aliases: BTreeMap<String, Module>,
}

/// The modules of a crate.
struct Crate {
    files: BTreeMap<Module, Source>,
}

impl Crate {
    fn read(tree: &Tree, package: &str) -> Self {
        let root = format!("{package}/src/");
        let mut files = BTreeMap::new();
        for (path, text) in tree.rust_files() {
            let Some(inner) = path.strip_prefix(&root) else { continue };
            let module = module_of(inner);
            if is_test_file(path) || inner.starts_with("bin/") {
                continue;
            }
            let Ok(file) = syn::parse_file(text) else { continue };
            let mut reader = Reader { module: module.clone(), ..Reader::default() };
            reader.visit_file(&file);
            reader.source.path = path.to_owned();
            files.insert(module, reader.source);
        }
        Self { files }
    }

    /// The module that a path leads to: the longest part of it that is a file, followed through
    /// what that file re-exports.
    fn target(&self, path: &[String], steps_left: usize) -> Option<&Module> {
        let lengths = (0..=path.len()).rev();
        let (length, (module, source)) =
            lengths.into_iter().find_map(|n| Some((n, self.files.get_key_value(&path[..n])?)))?;
        let alias = path.get(length).and_then(|name| source.aliases.get(name));
        match alias {
            Some(alias) if steps_left > 0 => {
                let mut on = alias.clone();
                on.extend_from_slice(&path[length + 1..]);
                self.target(&on, steps_left - 1)
            }
            _ => Some(module),
        }
    }

    /// Modules that each module uses, with the first line that does; the crate's root is left out.
    fn arrows(&self) -> BTreeMap<&Module, BTreeMap<&Module, usize>> {
        let mut arrows: BTreeMap<&Module, BTreeMap<&Module, usize>> = BTreeMap::new();
        for (module, source) in self.files.iter().filter(|(module, _)| !module.is_empty()) {
            let to = arrows.entry(module).or_default();
            for (path, line) in &source.uses {
                if let Some(target) = self.target(path, 8)
                    && target != module
                    && !target.is_empty()
                {
                    to.entry(target).or_insert(*line);
                }
            }
        }
        arrows
    }
}

fn module_of(inner: &str) -> Module {
    let inner = inner.trim_end_matches(".rs");
    let mut parts: Module = inner.split('/').map(str::to_owned).collect();
    if matches!(parts.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        parts.pop();
    }
    parts
}

/// Collects paths of one file.
#[derive(Default)]
struct Reader {
    module: Module,
    source: Source,
}

impl Reader {
    /// The absolute form of a path that begins with `crate`, `self` or `super`.
    fn absolute(&self, segments: &[String]) -> Option<Module> {
        let mut base = match segments.first()?.as_str() {
            "crate" => Module::new(),
            "self" => self.module.clone(),
            "super" => self.module[..self.module.len().saturating_sub(1)].to_vec(),
            _ => return None,
        };
        for segment in &segments[1..] {
            if segment == "super" {
                base.pop();
            } else {
                base.push(segment.clone());
            }
        }
        Some(base)
    }

    fn leaves(&mut self, prefix: &mut Vec<String>, tree: &syn::UseTree, line: usize) {
        match tree {
            syn::UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.leaves(prefix, &path.tree, line);
                prefix.pop();
            }
            syn::UseTree::Group(group) => {
                for one in &group.items {
                    self.leaves(prefix, one, line);
                }
            }
            syn::UseTree::Name(name) => self.leaf(prefix, &name.ident, &name.ident, line),
            syn::UseTree::Rename(rename) => self.leaf(prefix, &rename.ident, &rename.rename, line),
            syn::UseTree::Glob(_) => {
                if let Some(path) = self.absolute(prefix) {
                    self.source.uses.push((path, line));
                }
            }
        }
    }

    fn leaf(&mut self, prefix: &[String], name: &syn::Ident, alias: &syn::Ident, line: usize) {
        let mut segments = prefix.to_vec();
        if name != "self" {
            segments.push(name.to_string());
        }
        // `use child::Name` in the parent of `child`: relative, as every other re-export.
        let relative = || {
            let mut path = self.module.clone();
            path.extend(segments.iter().cloned());
            path
        };
        let absolute = self.absolute(&segments);
        let path = absolute.clone().unwrap_or_else(relative);
        self.source.aliases.insert(alias.to_string(), path);
        if let Some(path) = absolute {
            self.source.uses.push((path, line));
        }
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) => {
            list.path.is_ident("cfg") && list.tokens.to_string().contains("test")
        }
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::NameValue(_) => false,
    })
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_test(&item.attrs) {
            let line = item.use_token.span.start().line;
            self.leaves(&mut Vec::new(), &item.tree, line);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        if let (Some(absolute), Some(first)) = (self.absolute(&segments), path.segments.first())
            && segments.len() > 1
        {
            self.source.uses.push((absolute, first.ident.span().start().line));
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let is_public_type = matches!(&*item.self_ty, syn::Type::Path(path)
            if path.path.segments.len() == 2 && path.path.segments[0].ident == "crate");
        if item.trait_.is_none() && is_public_type {
            item.items.iter().for_each(|one| self.visit_impl_item(one));
        } else {
            syn::visit::visit_item_impl(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            syn::visit::visit_item_mod(self, item);
        }
    }
}

fn ordered(one: &Crate, order: &[&str], findings: &mut Vec<Finding>) {
    let level =
        |module: &Module| order.iter().position(|name| module.first() == Some(&(*name).into()));
    let landed =
        order.iter().all(|name| one.files.keys().any(|m| m.first() == Some(&(*name).into())));
    if !landed {
        return;
    }
    for (module, targets) in one.arrows() {
        for (target, line) in targets {
            if let (Some(from), Some(to)) = (level(module), level(target))
                && to > from
            {
                let message = format!(
                    "{} uses {}, which is above it: pass in what it needs, or move the shared \
                     part down (the order is in inside.rs)",
                    module.join("::"),
                    target.join("::")
                );
                findings.push(Finding::new(&one.files[module].path, line, message));
            }
        }
    }
}

fn circles(one: &Crate, findings: &mut Vec<Finding>) {
    let arrows = one.arrows();
    let mut done = BTreeSet::new();
    for module in arrows.keys() {
        if done.contains(module) {
            continue;
        }
        let from_here = reachable(&arrows, module);
        let circle: Vec<&Module> =
            from_here.iter().copied().filter(|m| reachable(&arrows, m).contains(module)).collect();
        done.extend(circle.iter().copied());
        if circle.len() > CIRCLE_FILES_MAX {
            let names: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
            let message = format!(
                "{} files use each other in a circle, at most {CIRCLE_FILES_MAX}: {}",
                circle.len(),
                names.join(", ")
            );
            findings.push(Finding::new(&one.files[*module].path, 0, message));
        }
    }
}

fn reachable<'a>(
    arrows: &BTreeMap<&'a Module, BTreeMap<&'a Module, usize>>,
    from: &'a Module,
) -> BTreeSet<&'a Module> {
    let mut seen = BTreeSet::new();
    let mut waiting = vec![from];
    while let Some(module) = waiting.pop() {
        for target in arrows.get(module).into_iter().flat_map(BTreeMap::keys) {
            if seen.insert(*target) {
                waiting.push(target);
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)]) -> Crate {
        let files: Vec<(String, &str)> =
            files.iter().map(|(path, text)| (format!("crates/a/src/{path}"), *text)).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (p.as_str(), *t)).collect();
        Crate::read(&Tree::of(&files), "crates/a")
    }

    #[test]
    fn an_arrow_up_is_found_also_through_a_re_export() {
        let up = |text: &str| {
            let files = [
                ("lib.rs", "pub use high::Thing;"),
                ("low.rs", text),
                ("low/part.rs", "use super::X;"),
                ("high/mod.rs", "use crate::low::Y; pub use self::deep::Deep;"),
                ("high/deep.rs", ""),
            ];
            let mut findings = Vec::new();
            ordered(&read(&files), &["low", "high"], &mut findings);
            findings.into_iter().map(|finding| finding.line).collect::<Vec<_>>()
        };
        assert_eq!(up("use std::fmt;\nuse crate::high::deep::Deep;\n"), [2]);
        assert_eq!(up("use crate::{Thing, other};\n"), [1]);
        assert_eq!(up("fn a() -> super::high::Deep { todo!() }\n"), [1]);
        assert_eq!(up("impl crate::Thing {\n    fn a(&self) {}\n}\n"), [0; 0]);
        assert_eq!(up("impl crate::Thing {\n    fn a(&self) { crate::high::b() }\n}\n"), [2]);
        assert_eq!(up("impl Clone for crate::Thing {}\n"), [1]);
        assert_eq!(up("#[cfg(test)]\nmod tests { use crate::high::X; }\n"), [0; 0]);
        assert_eq!(up("#[cfg(test)]\nuse crate::high::X;\nuse crate::low::part::Y;\n"), [0; 0]);
    }

    #[test]
    fn an_order_holds_once_its_modules_are_there() {
        let files = [("lib.rs", ""), ("low.rs", "use crate::high::X;")];
        let mut findings = Vec::new();
        ordered(&read(&files), &["low", "high"], &mut findings);
        assert!(findings.is_empty());
    }

    #[test]
    fn a_large_circle_is_found_and_a_small_one_is_not() {
        let ring = |count: usize| {
            let next = |at: usize| format!("use crate::m{}::X;", (at + 1) % count);
            let texts: Vec<(String, String)> =
                (0..count).map(|at| (format!("m{at}.rs"), next(at))).collect();
            let mut files: Vec<(&str, &str)> =
                texts.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
            files.push(("lib.rs", "use m0::X; use m1::X;"));
            let mut findings = Vec::new();
            circles(&read(&files), &mut findings);
            findings.len()
        };
        assert_eq!((ring(4), ring(5)), (0, 1));
    }
}
