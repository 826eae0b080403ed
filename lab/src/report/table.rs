//! Tables of text: columns aligned, figures with the digits that count.

/// Rows with aligned columns: the first `words` columns to the left, figures to the right.
pub fn aligned(rows: &[Vec<String>], words: usize) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let right: Vec<bool> = (0..columns).map(|column| column >= words).collect();
    syncline_image::text::table(rows, &right)
}

/// Three digits or more before the point lose the fraction.
pub fn figure(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_left_and_figures_right() {
        let rows = [["a", "b"], ["long", "1.00"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(aligned(&rows, 1), "a        b\nlong  1.00\n");
        assert_eq!([0.5, 12.34, 123.4].map(figure), ["0.50", "12.3", "123"]);
    }
}
