//! The rules: which files are relaxed.
//!
//! ```text
//!   # comment
//!   relaxed *-journal               a glob without a slash: the name of a file in any directory
//!   relaxed /home/*/.cache/**       with one: its whole path; * stops at a slash, ** does not
//!   strict  *.db
//!   log *.iso                       while it is written the file is a FlashLite log
//! ```
//! The last rule of `relaxed` and `strict` that matches decides; without one a file is strict.

use std::path::Path;

use glob::{MatchOptions, Pattern};

const PATH: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

const FORMS: &str = "is not `relaxed GLOB`, `strict GLOB` or `log GLOB`";

struct Rule {
    relaxed: bool,
    pattern: Pattern,
}

impl Rule {
    fn of_path(&self) -> bool {
        self.pattern.as_str().contains('/')
    }

    fn matches(&self, path: &Path) -> bool {
        if self.of_path() {
            return self.pattern.matches_with(&path.to_string_lossy(), PATH);
        }
        let name = path.file_name().unwrap_or(path.as_os_str());
        self.pattern.matches(&name.to_string_lossy())
    }
}

/// All rules, in their order.
#[derive(Default)]
pub(crate) struct Rules {
    durability: Vec<Rule>,
    /// Of files that are logs.
    logs: Vec<Rule>,
}

impl Rules {
    /// # Errors
    /// A sentence that names the line.
    pub(crate) fn parse(text: &str) -> Result<Rules, String> {
        let mut rules = Rules::default();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let bad = |why: &str| format!("rule {}: `{line}` {why}", number + 1);
            let (word, glob) = line.split_once(char::is_whitespace).ok_or_else(|| bad(FORMS))?;
            let (relaxed, list) = match word {
                "relaxed" => (true, &mut rules.durability),
                "strict" => (false, &mut rules.durability),
                "log" => (false, &mut rules.logs),
                _ => return Err(bad(FORMS)),
            };
            let pattern = Pattern::new(glob.trim())
                .map_err(|err| bad(&format!("is no glob: {}", err.msg)))?;
            list.push(Rule { relaxed, pattern });
        }
        Ok(rules)
    }

    /// True if no file is relaxed.
    pub(crate) fn nothing(&self) -> bool {
        self.durability.iter().all(|rule| !rule.relaxed)
    }

    /// True if every file is relaxed; calls without a file are relaxed then, too.
    pub(crate) fn everything(&self) -> bool {
        let rules = &self.durability;
        let last = rules.iter().rposition(|rule| rule.pattern.as_str() == "*");
        last.is_some_and(|at| rules[at..].iter().all(|rule| rule.relaxed))
    }

    /// True if a file with this absolute path is relaxed.
    pub(crate) fn is_relaxed(&self, path: &Path) -> bool {
        let decides = self.durability.iter().rev().find(|rule| rule.matches(path));
        decides.is_some_and(|rule| rule.relaxed)
    }

    /// True if any file can be a log.
    pub(crate) fn logs(&self) -> bool {
        !self.logs.is_empty()
    }

    /// True if a file with this absolute path is a log.
    pub(crate) fn is_log(&self, path: &Path) -> bool {
        self.logs.iter().any(|rule| rule.matches(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relaxed(rules: &str, path: &str) -> bool {
        Rules::parse(rules).unwrap().is_relaxed(Path::new(path))
    }

    #[test]
    fn the_last_match_decides_and_nothing_is_relaxed_without_one() {
        let rules = "# caches\nrelaxed *.tmp\n\nrelaxed /home/*/.cache/**\nstrict keep.*\n";
        assert!(relaxed(rules, "/a/b.tmp"));
        assert!(relaxed(rules, "/home/u/.cache/x/y.db"));
        assert!(!relaxed(rules, "/home/u/v/.cache/x/y.db"));
        assert!(!relaxed(rules, "/a/keep.tmp"));
        assert!(!relaxed(rules, "/a/b.db"));
        assert!(!relaxed("", "/a"));
        assert!(relaxed("strict *\nrelaxed a", "/x/a"));
        assert!(relaxed("relaxed /a/*", "/a/b") && !relaxed("relaxed /a/*", "/a/b/c"));
        assert!(relaxed("relaxed *", "/"));
    }

    #[test]
    fn everything_and_nothing() {
        let all = |text: &str| Rules::parse(text).unwrap().everything();
        let none = |text: &str| Rules::parse(text).unwrap().nothing();
        assert!(all("relaxed *") && all("strict a\nrelaxed *\nrelaxed b"));
        assert!(!all("relaxed *\nstrict a") && !all("relaxed a") && !all("strict *") && !all(""));
        assert!(none("") && none("strict *") && !none("relaxed a"));
    }

    #[test]
    fn logs_are_a_rule_of_their_own() {
        let rules = Rules::parse("relaxed *\nlog *.iso\nlog /d/**\nstrict a.iso").unwrap();
        let path = |text| Path::new(text);
        assert!(rules.logs() && rules.is_log(path("/x/a.iso")) && rules.is_log(path("/d/e/f")));
        assert!(!rules.is_log(path("/x/a.img")) && !rules.is_relaxed(path("/x/a.iso")));
        assert!(!rules.nothing() && !Rules::parse("relaxed *").unwrap().logs());
        assert!(Rules::parse("log *").unwrap().nothing());
    }

    #[test]
    fn bad_lines_are_named() {
        for (bad, why) in [
            ("lazy *", "rule 1"),
            ("relaxed", "rule 1"),
            ("strict a\nrelaxed [", "rule 2"),
            ("relaxed ***", "no glob"),
        ] {
            let said = Rules::parse(bad).err().unwrap();
            assert!(said.contains(why), "{said}");
        }
    }
}
