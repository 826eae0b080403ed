//! Numbers and words of text formats.

/// A decimal number times `unit`, exact where it has no exponent: `0.5` of 1,000,000,000 is
/// 500,000,000. Nothing for what is no number, is negative or has 2^63 or more.
pub(super) fn scaled(text: &str, unit: u64) -> Option<u64> {
    let text = text.trim();
    if text.contains(['e', 'E']) {
        let value = text.parse::<f64>().ok()? * unit as f64;
        return (value.is_finite() && (0.0..9.2e18).contains(&value)).then_some(value as u64);
    }
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !digits(whole) || !digits(fraction) {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // Nineteen digits are more than any clock has.
    let fraction = &fraction[..fraction.len().min(19)];
    let power = 10u128.pow(fraction.len() as u32);
    let part: u128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    let value = u128::from(whole) * u128::from(unit) + part * u128::from(unit) / power;
    u64::try_from(value).ok().filter(|value| *value <= i64::MAX as u64)
}

/// Seconds, or hours, minutes and seconds with colons, in nanoseconds.
pub(super) fn time(text: &str, unit_ns: u64) -> Option<u64> {
    let text = text.trim().trim_end_matches(" AM");
    let (text, noon) = match text.strip_suffix(" PM") {
        Some(text) => (text, 12 * 3600),
        None => (text, 0),
    };
    let Some((rest, seconds)) = text.rsplit_once(':') else { return scaled(text, unit_ns) };
    let mut minutes = 0u64;
    for part in rest.split(':') {
        minutes = minutes.checked_mul(60)?.checked_add(part.parse().ok()?)?;
    }
    let hours_12 = if noon > 0 && minutes >= 720 { 0 } else { noon };
    let before = minutes.checked_mul(60)?.checked_add(hours_12)?.checked_mul(1_000_000_000)?;
    before.checked_add(scaled(seconds, 1_000_000_000)?)
}

/// A whole number.
pub(super) fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// `name-123`: the name and the number after the last dash.
pub(super) fn name_and_pid(text: &str) -> Option<(&str, u32)> {
    let (name, pid) = text.trim().rsplit_once('-')?;
    Some((name.trim(), pid.trim().parse().ok()?))
}
