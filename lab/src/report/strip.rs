//! Strips: a published value and ours as marks on one scale, in a cell of a table.
//!
//! ```text
//!   head    0            2000      ends of the scale; `log` where it is logarithmic
//!   cell    |------[]--o-----|     a bar of what is published, a dot of ours
//! ```
//!
//! The figures stand beside a strip as text, so that it needs no script and no labels of its own.

use std::fmt::Write;

/// Quotient of the largest and the least value from which on a scale is logarithmic.
const LOG_FROM: f64 = 50.0;

/// A scale.
#[derive(Clone, Debug, PartialEq)]
pub struct Strip {
    low: f64,
    high: f64,
    log: bool,
}

/// Ends of a scale, times a power of ten.
const STEPS: [f64; 9] = [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];

/// The next number away from zero that is an end.
fn round(value: f64) -> f64 {
    let size = value.abs();
    if size == 0.0 {
        return 0.0;
    }
    let power = 10f64.powf(size.log10().floor());
    let step = STEPS.into_iter().find(|step| step * power >= size * 0.999_999);
    step.unwrap_or(10.0) * power * value.signum()
}

/// An end of a scale as text: it has two digits that count at most.
fn end(value: f64) -> String {
    let digits = if value == 0.0 { 0.0 } else { 1.0 - value.abs().log10().floor() };
    let text = format!("{value:.*}", digits.max(0.0) as usize);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

impl Strip {
    /// The scale on which all of these values are.
    pub fn over(values: impl Iterator<Item = f64>) -> Strip {
        let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        let low = values.iter().copied().fold(f64::MAX, f64::min);
        let high = values.iter().copied().fold(f64::MIN, f64::max);
        if values.is_empty() {
            return Strip { low: 0.0, high: 1.0, log: false };
        }
        if low > 0.0 && high / low > LOG_FROM {
            let ends = [low.log10().floor(), high.log10().ceil()];
            let [low, high] = ends.map(|power| 10f64.powf(power));
            return Strip { low, high, log: true };
        }
        let (low, high) = (round(low.min(0.0)), round(high.max(0.0)));
        Strip { low, high: if low == high { 1.0 } else { high }, log: false }
    }

    /// True for a logarithmic scale.
    pub fn is_log(&self) -> bool {
        self.log
    }

    /// Place of a value, per cent of the width.
    fn at(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.log { value.max(self.low).log10() } else { value };
        let [low, high, value] = [self.low, self.high, value].map(scale);
        3.0 + 94.0 * ((value - low) / (high - low)).clamp(0.0, 1.0)
    }

    /// The cell above the strips.
    pub fn head(&self) -> String {
        let log = if self.log { "<i>log</i>" } else { "" };
        let [low, high] = [self.low, self.high].map(end);
        format!("<th class=\"strip\"><div><span>{low}</span>{log}<span>{high}</span></div></th>")
    }

    /// The cell of one figure.
    pub fn cell(&self, published: Option<[f64; 2]>, ours: Option<f64>) -> String {
        let mut marks = String::new();
        if !self.log && self.low < 0.0 {
            let _ = write!(
                marks,
                "<line class=\"zero\" x1=\"{0:.1}%\" x2=\"{0:.1}%\" y1=\"0\" y2=\"16\"/>",
                self.at(0.0)
            );
        }
        if let Some(ends) = published {
            let [from, to] = ends.map(|end| self.at(end));
            let _ = write!(
                marks,
                "<line class=\"paper\" x1=\"{:.1}%\" x2=\"{:.1}%\" y1=\"8\" y2=\"8\"/>",
                from - 0.8,
                to + 0.8
            );
        }
        if let Some(ours) = ours {
            let _ = write!(marks, "<circle cx=\"{:.1}%\" cy=\"8\" r=\"4\"/>", self.at(ours));
        }
        format!("<td class=\"strip\"><svg aria-hidden=\"true\">{marks}</svg></td>")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_end_at_round_numbers() {
        let ends = |values: &[f64]| {
            let Strip { low, high, log } = Strip::over(values.iter().copied());
            (low, high, log)
        };
        assert_eq!(ends(&[3.0, 42.0]), (0.0, 50.0, false));
        assert_eq!(ends(&[-97.0, 2.0]), (-100.0, 2.0, false));
        assert_eq!(ends(&[0.02, 18.0]), (0.01, 100.0, true));
        assert_eq!(ends(&[0.0, 5000.0]), (0.0, 5000.0, false));
        assert_eq!(ends(&[0.0]), (0.0, 1.0, false));
        assert_eq!(ends(&[]), (0.0, 1.0, false));
        let texts = [0.0, 0.001, 0.1 * 3.0, 1.5, 150.0, -2000.0].map(end);
        assert_eq!(texts, ["0", "0.001", "0.3", "1.5", "150", "-2000"]);
    }

    #[test]
    fn marks_are_in_the_order_of_their_values() {
        for strip in [Strip::over([1.0, 9.0].into_iter()), Strip::over([1.0, 900.0].into_iter())] {
            let places = [1.0, 2.0, 9.0].map(|value| strip.at(value));
            assert!(places[0] >= 3.0 && places.is_sorted() && places[2] <= 97.0, "{places:?}");
        }
        let cell = Strip::over([-50.0, 100.0].into_iter()).cell(Some([10.0, 20.0]), Some(-50.0));
        assert!(
            cell.contains("class=\"zero\"")
                && cell.contains("class=\"paper\"")
                && cell.contains("cx=\"3.0%\""),
            "{cell}"
        );
    }
}
