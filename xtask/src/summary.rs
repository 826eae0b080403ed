//! Sums of the output of `cargo test` and of the skip log.

use std::collections::BTreeMap;

/// Counted results of checks and tests.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Tests and checks that ran and held.
    pub passed: u64,
    /// Names of tests and checks that failed.
    pub failed: Vec<String>,
    /// Names that did not run here, with the reason.
    pub skipped: BTreeMap<String, String>,
    /// Failures that cargo counted; names are taken from its lines as far as they can be.
    failed_counted: u64,
    failed_named: u64,
}

impl Summary {
    /// Takes in one line of cargo test's standard output.
    pub fn test_line(&mut self, line: &str) {
        let line = line.trim();
        if let Some(counts) = line.strip_prefix("test result: ") {
            self.passed += number_before(counts, " passed");
            self.failed_counted += number_before(counts, " failed");
            return;
        }
        let Some((name, verdict)) = line.strip_prefix("test ").and_then(|l| l.split_once(" ... "))
        else {
            return;
        };
        if verdict == "FAILED" {
            self.failed.push(name.to_owned());
            self.failed_named += 1;
        } else if let Some(rest) = verdict.strip_prefix("ignored") {
            let reason = rest.trim_start_matches([',', ' ']);
            let reason = if reason.is_empty() { "ignored, no reason given" } else { reason };
            self.skipped.insert(name.to_owned(), reason.to_owned());
        }
    }

    /// Takes in the skip log: tests that returned early. cargo counts them as passed.
    pub fn skip_log(&mut self, log: &str) {
        for line in log.lines() {
            let (name, reason) = line.split_once(": ").unwrap_or((line, "no reason given"));
            if self.skipped.insert(name.to_owned(), reason.to_owned()).is_none() {
                self.passed = self.passed.saturating_sub(1);
            }
        }
    }

    /// The end of the test run. A run that fails without a failed test did not compile, or a test
    /// program died.
    pub fn tests_done(&mut self, success: bool) {
        for _ in self.failed_named..self.failed_counted {
            self.failed.push("a test whose line was interrupted by output".to_owned());
        }
        if !success && self.failed.is_empty() {
            self.failed.push("cargo test: did not compile, or a test program died".to_owned());
        }
    }

    /// The last line of a run.
    pub fn last_line(&self) -> String {
        let (failed, skipped) = (self.failed.len(), self.skipped.len());
        format!("{} passed, {failed} failed, {skipped} skipped", self.passed)
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

    #[test]
    fn results_add_up() {
        let mut summary = Summary::default();
        OUTPUT.lines().for_each(|line| summary.test_line(line));
        summary.skip_log("c: needs root\nc: needs root\n");
        summary.tests_done(false);
        assert_eq!(summary.failed, ["a::breaks"]);
        assert_eq!(summary.skipped["a::slow"], "takes an hour");
        assert_eq!(summary.skipped["c"], "needs root");
        assert_eq!(summary.last_line(), "2 passed, 1 failed, 2 skipped");
    }

    #[test]
    fn a_run_that_dies_is_a_failure() {
        let mut summary = Summary::default();
        summary.tests_done(false);
        assert_eq!(summary.last_line(), "0 passed, 1 failed, 0 skipped");
        let mut summary = Summary::default();
        summary.test_line("test result: FAILED. 0 passed; 2 failed; 0 ignored");
        summary.tests_done(false);
        assert_eq!(summary.last_line(), "0 passed, 2 failed, 0 skipped");
    }
}
