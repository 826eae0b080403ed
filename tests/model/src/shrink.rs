//! Makes a failing list of operations short: parts are left out as long as it still fails.

use std::time::{Duration, Instant};

use crate::ops::ModelOp;

/// The shortest list found within `limit` for which `fails` is still true. Parts of half the
/// length are tried first, then quarters, down to single operations, until nothing can go.
#[must_use]
pub fn shrink(
    ops: &[ModelOp],
    limit: Duration,
    mut fails: impl FnMut(&[ModelOp]) -> bool,
) -> Vec<ModelOp> {
    let deadline = Instant::now() + limit;
    let mut best = ops.to_vec();
    let mut part = best.len().div_ceil(2).max(1);
    loop {
        let (mut at, mut went) = (0, false);
        while at < best.len() {
            if Instant::now() > deadline {
                return best;
            }
            let end = (at + part).min(best.len());
            let shorter = [&best[..at], &best[end..]].concat();
            if fails(&shorter) {
                (best, went) = (shorter, true);
            } else {
                at = end;
            }
        }
        if part == 1 && !went {
            return best;
        }
        part = if part == 1 { 1 } else { part.div_ceil(2) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_operations_that_fail_together_are_found() {
        let tick = |ms| ModelOp::Tick { ms };
        let ops: Vec<ModelOp> = (0..500).map(tick).collect();
        let found = shrink(&ops, Duration::from_secs(5), |ops| {
            ops.contains(&tick(17)) && ops.contains(&tick(402))
        });
        assert_eq!(found, [tick(17), tick(402)]);
    }
}
