//! Published analysis of write amplification under uniform random writes.

#![allow(dead_code, missing_docs)]

/// Greedy collection: Desnoyers, "Analytic modeling of SSD write performance", SYSTOR 2012, greedy
/// cleaning with n units a superblock, a = T/U: x0 = 1/2 - n/a W(-k a e^(-k a)) with k = 1 +
/// 1/(2n), A = n / (n - (x0 - 1)).
pub fn greedy_write_amplification(usable: f64, total: f64, units_per_block: f64) -> f64 {
    let (n, a) = (units_per_block, total / usable);
    let k = 1.0 + 1.0 / (2.0 * n);
    let x0 = 0.5 - n / a * lambert_w(-k * a * (-k * a).exp());
    n / (n - (x0 - 1.0))
}

/// First in, first out: the same paper, LRU cleaning: A = a / (a + W(-a e^-a)).
pub fn fifo_write_amplification(usable: f64, total: f64) -> f64 {
    let a = total / usable;
    a / (a + lambert_w(-a * (-a).exp()))
}

/// The principal branch for arguments in -1/e..0, by bisection.
fn lambert_w(x: f64) -> f64 {
    let (mut low, mut high) = (-1.0f64, 0.0f64);
    for _ in 0..100 {
        let w = (low + high) / 2.0;
        if w * w.exp() < x { low = w } else { high = w }
    }
    low
}
