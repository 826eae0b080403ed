//! Transaction numbers: 32 bits that wrap.

/// Number of a transaction. Wraps; compare with [`tid_gt`] and [`tid_geq`] only.
pub type Tid = u32;

/// True if `a` is newer than `b`, as `tid_gt` in `include/linux/jbd2.h`.
pub fn tid_gt(a: Tid, b: Tid) -> bool {
    a != b && tid_geq(a, b)
}

/// True if `a` is `b` or newer, as `tid_geq` in `include/linux/jbd2.h`.
pub fn tid_geq(a: Tid, b: Tid) -> bool {
    a.wrapping_sub(b) < 1 << 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compares_across_the_wrap() {
        assert!(tid_gt(1, u32::MAX) && !tid_gt(u32::MAX, 1));
        assert!(tid_geq(5, 5) && !tid_gt(5, 5));
        assert!(tid_gt(6, 5) && !tid_geq(5, 6));
    }
}
