//! Questions for the mode of `sync=` in `crates/core/fs`: the sync engines answer them.
//!
//! A file outside of `data/engine` and `options` that names a `SyncMode` decides by mode. At most
//! [`OUTSIDE_MAX`] lines do; a new mode is then one new engine. Test code does not count.

use super::{Finding, Tree, is_test_file};

/// Lines outside of the engines and the options that may name a mode.
const OUTSIDE_MAX: usize = 3;

const CRATE: &str = "crates/core/fs/src/";
const INSIDE: [&str; 2] = ["crates/core/fs/src/data/engine/", "crates/core/fs/src/options/"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let outside = tree.rust_files().filter(|(path, _)| {
        path.starts_with(CRATE)
            && !is_test_file(path)
            && !INSIDE.iter().any(|inside| path.starts_with(inside))
    });
    let asked = outside.flat_map(|(path, text)| {
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
        let lines = code.lines().enumerate();
        lines
            .filter(|(_, line)| line.contains("SyncMode::") && !line.trim_start().starts_with("//"))
            .map(move |(at, _)| (path, at + 1))
    });
    let message = format!(
        "more than {OUTSIDE_MAX} lines outside of data/engine and options name a mode of `sync=`: \
         ask the engine (the trait in data/engine/mod.rs)"
    );
    let found = |(path, line)| Finding::new(path, line, message.clone());
    asked.skip(OUTSIDE_MAX).map(found).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fourth_question_outside_of_the_engines_is_found() {
        let asks = "// SyncMode::Eager\nlet a = mode == SyncMode::Eager;\n\
                    #[cfg(test)]\nmod tests { const M: SyncMode = SyncMode::Eager; }\n";
        let found = |last: &str| {
            let files = [
                ("crates/core/fs/src/a.rs", asks),
                ("crates/core/fs/src/b.rs", asks),
                ("crates/core/fs/src/c.rs", asks),
                ("crates/core/fs/src/data/engine/mod.rs", asks),
                (last, asks),
            ];
            check(&Tree::of(&files)).len()
        };
        assert_eq!(found("crates/core/fs/src/options/mod.rs"), 0);
        assert_eq!(found("crates/core/fs/src/d.rs"), 1);
    }
}
