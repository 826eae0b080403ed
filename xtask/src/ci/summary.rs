//! Sums of the output of test programs and of their skip logs.

use std::collections::{BTreeMap, BTreeSet};

/// Counted results of checks and tests.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Tests and checks that ran and held.
    pub passed: u64,
    /// Names of tests and checks that failed.
    pub failed: Vec<String>,
    /// Names that did not run here, with the reason.
    pub skipped: BTreeMap<String, String>,
}

impl Summary {
    /// The last line of a run.
    pub fn last_line(&self) -> String {
        let (failed, skipped) = (self.failed.len(), self.skipped.len());
        format!("{} passed, {failed} failed, {skipped} skipped", self.passed)
    }
}

/// Results of one test program, or of several in one run of cargo.
#[derive(Debug, Default)]
pub struct Results {
    passed: u64,
    failed: Vec<String>,
    /// Failures in the result lines; names are taken from the tests' lines as far as they can be.
    failed_counted: usize,
    skipped: BTreeMap<String, String>,
    /// Tests that have run for a minute.
    slow: BTreeSet<String>,
}

impl Results {
    /// Takes in one line of its standard output.
    pub fn line(&mut self, line: &str) {
        let line = line.trim();
        if let Some(counts) = line.strip_prefix("test result: ") {
            self.passed += number_before(counts, " passed");
            self.failed_counted += number_before(counts, " failed") as usize;
            return;
        }
        let Some(line) = line.strip_prefix("test ") else { return };
        if let Some((name, _)) = line.split_once(" has been running for over ") {
            self.slow.insert(name.to_owned());
        }
        let Some((name, verdict)) = line.split_once(" ... ") else { return };
        self.slow.remove(name);
        if verdict == "FAILED" {
            self.failed.push(name.to_owned());
        } else if let Some(rest) = verdict.strip_prefix("ignored") {
            let reason = rest.trim_start_matches([',', ' ']);
            let reason = if reason.is_empty() { "ignored, no reason given" } else { reason };
            self.skipped.insert(name.to_owned(), reason.to_owned());
        }
    }

    /// Takes in the skip log: tests that returned early. The program counts them as passed.
    pub fn skip_log(&mut self, log: &str) {
        for line in log.lines() {
            let (name, reason) = line.split_once(": ").unwrap_or((line, "no reason given"));
            if self.skipped.insert(name.to_owned(), reason.to_owned()).is_none() {
                self.passed = self.passed.saturating_sub(1);
            }
        }
    }

    /// Adds them to the summary under the name of the program, which ended with success, with a
    /// failure, or not by itself, for the reason in `end`.
    pub fn add_to(self, summary: &mut Summary, program: &str, end: Result<bool, String>) {
        let failed = &mut summary.failed;
        let before = failed.len();
        failed.extend(self.failed.iter().map(|name| format!("{program}: {name}")));
        for _ in self.failed.len()..self.failed_counted {
            failed.push(format!("{program}: a test whose line was interrupted by output"));
        }
        match end {
            Err(reason) if self.slow.is_empty() => failed.push(format!("{program}: {reason}")),
            Err(reason) => {
                let slow: Vec<&str> = self.slow.iter().map(String::as_str).collect();
                failed.push(format!("{program}: {reason}; in {}", slow.join(", ")));
            }
            Ok(false) if failed.len() == before => failed.push(format!("{program}: died")),
            Ok(_) => (),
        }
        summary.passed += self.passed;
        let skipped = self.skipped.into_iter();
        summary.skipped.extend(skipped.map(|(name, why)| (format!("{program}: {name}"), why)));
    }
}

fn number_before(text: &str, word: &str) -> u64 {
    let Some((before, _)) = text.split_once(word) else { return 0 };
    before.rsplit(|c: char| !c.is_ascii_digit()).next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\nrunning 3 tests\ntest a::works ... ok\ntest a::breaks ... FAILED\n\
        test a::slow ... ignored, takes an hour\n\n\
        test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out\n\
        running 2 tests\ntest b ... ok\ntest c ... ok\n\
        test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";

    fn sum(output: &str, end: Result<bool, String>) -> Summary {
        let mut results = Results::default();
        output.lines().for_each(|line| results.line(line));
        if output == OUTPUT {
            results.skip_log("c: needs root\nc: needs root\n");
        }
        let mut summary = Summary::default();
        results.add_to(&mut summary, "p it", end);
        summary
    }

    #[test]
    fn results_add_up() {
        let summary = sum(OUTPUT, Ok(false));
        assert_eq!(summary.failed, ["p it: a::breaks"]);
        assert_eq!(summary.skipped["p it: a::slow"], "takes an hour");
        assert_eq!(summary.skipped["p it: c"], "needs root");
        assert_eq!(summary.last_line(), "2 passed, 1 failed, 2 skipped");
    }

    #[test]
    fn a_program_that_dies_is_a_failure() {
        assert_eq!(sum("", Ok(false)).failed, ["p it: died"]);
        let counted = sum("test result: FAILED. 0 passed; 2 failed; 0 ignored", Ok(false));
        assert_eq!(counted.last_line(), "0 passed, 2 failed, 0 skipped");
    }

    #[test]
    fn a_program_that_hangs_is_a_failure_with_the_name_of_its_test() {
        let late = || Err("not done after 600 s".to_owned());
        assert_eq!(sum("", late()).failed, ["p it: not done after 600 s"]);
        let output = "test a has been running for over 60 seconds\n\
            test b has been running for over 60 seconds\ntest a ... ok\n";
        assert_eq!(sum(output, late()).failed, ["p it: not done after 600 s; in b"]);
    }
}
