//! Specifications and tables of profiles: names, overrides, hosts and open parameters, before and
//! after the typed form.

use super::BUILT_IN;
use crate::NandError;

/// A parameter that published figures leave open: `key = { value = 4, low = 1, high = 8 }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// Name of the parameter.
    pub key: String,
    /// The value of the profile.
    pub value: i64,
    /// Least value that the published figures allow, at most `value`.
    pub low: i64,
    /// Greatest value that they allow, at least `value`.
    pub high: i64,
}

pub(super) fn built_in(name: &str) -> Result<&'static str, NandError> {
    if let Some((_, text)) = BUILT_IN.iter().find(|(n, _)| *n == name) {
        return Ok(text);
    }
    let near = BUILT_IN.iter().map(|(known, _)| (edit_distance(name, known), *known));
    // Every second letter may be wrong, or the end be missing.
    let begins = |known: &str| !name.is_empty() && known.starts_with(name);
    let is_near = |(wrong, known): &(usize, &str)| *wrong <= name.len() / 2 || begins(known);
    let mut near: Vec<_> = near.filter(is_near).collect();
    near.sort_by_key(|(wrong, _)| *wrong);
    let near: Vec<&str> = near.iter().take(3).map(|(_, known)| *known).collect();
    let nearest = match near.as_slice() {
        _ if name.contains(',') => {
            "; name one; commands that take several take `--device` once for each".to_owned()
        }
        [] => String::new(),
        near => format!("; nearest: {}", near.join(", ")),
    };
    Err(NandError::UnknownProfile { name: name.to_owned(), nearest })
}

pub(super) fn parse(name: &str, text: &str) -> Result<toml::Table, NandError> {
    let mut table: toml::Table = text.parse().map_err(|e: toml::de::Error| NandError::Parse {
        name: name.to_owned(),
        reason: e.to_string().trim_end().to_owned(),
    })?;
    // Optional in a file, but an override may name it.
    if let Some(ftl) = table.get_mut("ftl").and_then(toml::Value::as_table_mut) {
        ftl.entry("handles").or_insert(toml::Value::Integer(1));
        ftl.entry("initially_isolated").or_insert(toml::Value::Boolean(false));
    }
    if let Some(buffer) = table.get_mut("buffer").and_then(toml::Value::as_table_mut) {
        buffer.entry("barrier").or_insert(toml::Value::Boolean(false));
    }
    Ok(table)
}

/// Tables whose keys may be overridden.
const TABLES: [&str; 8] = ["geometry", "timing", "ftl", "buffer", "slc", "zones", "host", "energy"];

/// Applies one `key=value`, whose type is that of the value it replaces.
fn set(table: &mut toml::Table, text: &str) -> Result<(), NandError> {
    let bad = || NandError::BadOverride { text: text.to_owned() };
    let (key, value) = text.split_once('=').ok_or_else(bad)?;
    let (key, value) = (key.trim(), value.trim());
    let mut known = Vec::new();
    for name in TABLES {
        let Some(section) = table.get_mut(name).and_then(toml::Value::as_table_mut) else {
            continue;
        };
        if let Some(old) = section.get_mut(key) {
            *old = match old {
                toml::Value::Integer(_) | toml::Value::Table(_) => {
                    toml::Value::Integer(value.parse().map_err(|_| bad())?)
                }
                toml::Value::Boolean(_) => toml::Value::Boolean(value.parse().map_err(|_| bad())?),
                _ => toml::Value::String(value.to_owned()),
            };
            return Ok(());
        }
        known.extend(section.keys().cloned());
    }
    known.sort();
    Err(NandError::UnknownKey { key: key.to_owned(), known: known.join(", ") })
}

/// Replaces the tables of open parameters by their values.
pub(super) fn take_open(table: &mut toml::Table) -> Result<Vec<Open>, NandError> {
    let mut found = Vec::new();
    for name in TABLES {
        let Some(section) = table.get_mut(name).and_then(toml::Value::as_table_mut) else {
            continue;
        };
        for (key, entry) in section {
            let Some(range) = entry.as_table() else { continue };
            let number = |part: &str| range.get(part).and_then(toml::Value::as_integer);
            let open = match (number("value"), number("low"), number("high"), range.len()) {
                (Some(value), Some(low), Some(high), 3) if low <= value && value <= high => {
                    Open { key: key.clone(), value, low, high }
                }
                _ => return Err(NandError::BadRange { key: key.clone() }),
            };
            *entry = toml::Value::Integer(open.value);
            found.push(open);
        }
    }
    Ok(found)
}

/// Puts the tables of open parameters back, for a text.
pub(super) fn put_open(table: &mut toml::Table, all: &[Open]) {
    for open in all {
        for name in TABLES {
            let section = table.get_mut(name).and_then(toml::Value::as_table_mut);
            let Some(section) = section else { continue };
            if let Some(entry) = section.get_mut(&open.key).filter(|old| old.is_integer()) {
                let parts = [("value", open.value), ("low", open.low), ("high", open.high)];
                let parts = parts.map(|(part, number)| (part.to_owned(), number.into()));
                *entry = toml::Value::Table(parts.into_iter().collect());
            }
        }
    }
}

/// Applies `key=value,...`.
pub(super) fn set_all(table: &mut toml::Table, overrides: &str) -> Result<(), NandError> {
    for text in overrides.split(',').map(str::trim).filter(|t| !t.is_empty()) {
        match text.strip_prefix("host=") {
            Some(host) => set_host(table, host.trim())?,
            None => set(table, text)?,
        }
    }
    Ok(())
}

/// Puts the part into another host: its parameters and the figures that were measured there.
fn set_host(table: &mut toml::Table, host: &str) -> Result<(), NandError> {
    let hosts = table.remove("hosts").unwrap_or_else(|| toml::Table::new().into());
    let Some(parameters) = hosts.get(host).and_then(toml::Value::as_table) else {
        let known = hosts.as_table().map(|t| t.keys().cloned().collect::<Vec<_>>());
        let known = known.unwrap_or_default().join(", ");
        return Err(NandError::UnknownHost { host: host.to_owned(), known });
    };
    for (key, value) in parameters {
        set(table, &format!("{key}={value}"))?;
    }
    if let Some(checks) = table.get_mut("check").and_then(toml::Value::as_array_mut) {
        checks.retain(|check| check.get("host").and_then(toml::Value::as_str) == Some(host));
        for check in checks.iter_mut().filter_map(toml::Value::as_table_mut) {
            check.remove("host");
        }
    }
    Ok(())
}

/// Levenshtein distance, for "nearest" in messages. Quadratic; both are names.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(256).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
