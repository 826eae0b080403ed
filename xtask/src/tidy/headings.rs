//! Headings of doc comments: `# Errors` stands alone, or rustdoc makes a heading of the text
//! behind it.

use super::{Finding, Tree};

const HEADINGS: [&str; 4] = ["# Errors ", "# Panics ", "# Safety ", "# Examples "];

pub fn check(tree: &Tree) -> Vec<Finding> {
    tree.rust_files().flat_map(|(path, text)| headings(path, text)).collect()
}

fn headings(path: &str, text: &str) -> Vec<Finding> {
    let is_broken = |line: &str| {
        let doc = line.trim_start();
        let doc = doc.strip_prefix("/// ").or_else(|| doc.strip_prefix("//! "));
        doc.is_some_and(|doc| HEADINGS.iter().any(|heading| doc.starts_with(heading)))
    };
    let broken = text.lines().enumerate().filter(|(_, line)| is_broken(line));
    let message = "text behind a heading is a part of it: begin it on the next line";
    broken.map(|(at, _)| Finding::new(path, at + 1, message.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_behind_a_heading_is_found() {
        let text = "/// Reads.\n///\n/// # Errors The device's.\nfn a() {}\n";
        let found = headings("a.rs", text);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].path.as_str(), found[0].line), ("a.rs", 3));
        assert!(headings("a.rs", "/// # Errors\n/// The device's.\n// # Errors x\n").is_empty());
    }
}
