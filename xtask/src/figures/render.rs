//! Tables as Markdown.
//!
//! A cell takes the one record that the picks of its table, row and column agree on, computes its
//! value (a product or quotient of metrics and numbers) and formats it. Integers have separators
//! and ratios two decimals, whatever the magnitude.

use super::spec::{Column, Format, Pick, Row, Table};
use super::store::{Record, Results};

/// Metrics in an expression.
pub fn names(expression: &str) -> impl Iterator<Item = &str> {
    let factors = expression.split(['*', '/']).map(str::trim);
    factors.filter(|factor| factor.parse::<f64>().is_err())
}

/// The full name of a metric: without a prefix it belongs to the scope of its table, after a point
/// to none.
pub fn scoped(scope: &str, name: &str) -> String {
    if let Some(name) = name.strip_prefix('.') {
        name.to_owned()
    } else if scope.is_empty() || name.contains('.') {
        name.to_owned()
    } else {
        format!("{scope}.{name}")
    }
}

/// Cells of a table: head, then rows.
pub fn cells(table: &Table, runs: &[Results]) -> Result<Vec<Vec<String>>, String> {
    let records: Vec<&Record> = runs.iter().flat_map(|run| &run.records).collect();
    let mut lines = vec![head(table)];
    for row in rows(table, &records) {
        let mut line = vec![row.label.clone()];
        for column in &table.columns {
            let cell = cell(table, &row, column, &records);
            let at = || format!("table {}, row {}, column {}", table.name, row.label, column.head);
            line.push(cell.map_err(|error| format!("{}: {error}", at()))?);
        }
        lines.push(line);
    }
    Ok(lines)
}

fn head(table: &Table) -> Vec<String> {
    let heads = table.columns.iter().map(|column| column.head.clone());
    std::iter::once(table.head.clone()).chain(heads).collect()
}

/// Declared rows, or one for each value of the key `each`.
pub fn rows(table: &Table, records: &[&Record]) -> Vec<Row> {
    let Some(key) = &table.each else { return table.rows.clone() };
    let mut rows: Vec<Row> = Vec::new();
    let filled = |record: &Record| {
        let text =
            table.filled.as_ref().map(|key| record.get(key).and_then(|value| value.as_str()));
        text.is_none_or(|text| text.is_some_and(|text| !text.is_empty()))
    };
    let picked = records.iter().filter(|record| matches(record, &[&table.pick]) && filled(record));
    for value in picked.filter_map(|record| record.get(key)).filter_map(|value| value.as_str()) {
        let label = table.names.get(value).map_or(value, String::as_str);
        let pick = Pick::from([(key.clone(), toml::Value::String(value.to_owned()))]);
        if !label.is_empty() && !rows.iter().any(|row| row.pick == pick) {
            let declared = table.rows.iter().find(|row| row.label == label);
            let text = declared.map(|row| row.text.clone()).unwrap_or_default();
            rows.push(Row { label: label.to_owned(), pick, text, ..Row::default() });
        }
    }
    rows
}

fn cell(table: &Table, row: &Row, column: &Column, records: &[&Record]) -> Result<String, String> {
    if let Some(key) = &column.text {
        return Ok(row.text.get(key).cloned().unwrap_or_default());
    }
    let formats = [column.format, row.format, table.format];
    let format = formats.into_iter().flatten().next().unwrap_or(Format::Plain);
    let parts = [column.value.parts(), row.value.parts(), table.value.parts()];
    let parts = parts.into_iter().find(|parts| !parts.is_empty()).unwrap_or_default();
    let record = find(records, &[&table.pick, &row.pick, &column.pick])?;
    if record.contains_key("why") {
        return Ok("left out".to_owned());
    }
    let mut shown = Vec::new();
    for part in parts {
        if format == Format::Text {
            let text = record.get(&scoped(&table.scope, part)).and_then(|value| value.as_str());
            shown.push(text.unwrap_or_default().to_owned());
            continue;
        }
        let mut value = evaluate(record, &table.scope, part)?;
        if let Some(over) = &column.over {
            let base = find(records, &[&table.pick, &row.pick, over])?;
            value /= evaluate(base, &table.scope, part)?;
        }
        shown.push(number(value, format));
    }
    Ok(shown.join(" / "))
}

/// The only record that has all values; later picks override earlier ones.
pub fn find<'a>(records: &[&'a Record], picks: &[&Pick]) -> Result<&'a Record, String> {
    let mut found = records.iter().filter(|record| matches(record, picks));
    let first = found.next().ok_or("no record has what it picks")?;
    match found.count() {
        0 => Ok(first),
        more => Err(format!("{} records have what it picks: pick closer", more + 1)),
    }
}

fn matches(record: &Record, picks: &[&Pick]) -> bool {
    let mut wanted = Pick::new();
    for pick in picks {
        wanted.extend(pick.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
    wanted.iter().all(|(key, value)| match (record.get(key), value) {
        (Some(serde_json::Value::String(a)), toml::Value::String(b)) => a == b,
        (Some(serde_json::Value::Number(a)), toml::Value::Integer(b)) => a.as_i64() == Some(*b),
        (Some(serde_json::Value::Number(a)), toml::Value::Float(b)) => a.as_f64() == Some(*b),
        (Some(serde_json::Value::Bool(a)), toml::Value::Boolean(b)) => a == b,
        (None, toml::Value::String(b)) => b.is_empty(),
        _ => false,
    })
}

/// The value of a product or quotient, from left to right.
pub fn evaluate(record: &Record, scope: &str, expression: &str) -> Result<f64, String> {
    let mut value = 1.0;
    let mut rest = expression;
    let mut divide = false;
    loop {
        let end = rest.find(['*', '/']).unwrap_or(rest.len());
        let name = rest[..end].trim();
        let factor = match name.parse::<f64>() {
            Ok(number) => number,
            Err(_) => {
                let found = record.get(&scoped(scope, name)).and_then(serde_json::Value::as_f64);
                found.ok_or_else(|| format!("no metric {name} is stored: run it anew"))?
            }
        };
        value = if divide { value / factor } else { value * factor };
        let Some(sign) = rest[end..].chars().next() else { return Ok(value) };
        divide = sign == '/';
        rest = &rest[end + 1..];
    }
}

/// A number as a cell.
pub fn number(value: f64, format: Format) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    match format {
        Format::Ratio => format!("{value:.2}"),
        Format::Percent => format!("{:.0} %", value * 100.0),
        Format::Change => format!("{:+.0} %", (value - 1.0) * 100.0),
        Format::Count => separated(value),
        Format::Tenth => format!("{value:.1}"),
        Format::Plain | Format::Text if value.abs() < 9.995 => format!("{value:.2}"),
        Format::Plain | Format::Text if value.abs() < 99.95 => format!("{value:.1}"),
        Format::Plain | Format::Text => separated(value),
    }
}

fn separated(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value <= -0.5 { format!("-{text}") } else { text }
}

/// Lines of Markdown.
pub fn markdown(cells: &[Vec<String>]) -> String {
    let mut text = String::new();
    for (number, line) in cells.iter().enumerate() {
        let line: Vec<&str> = line.iter().map(|cell| cell.trim()).collect();
        text += format!("| {} |\n", line.join(" | ")).replace("|  |", "| |").as_str();
        if number == 0 {
            text += &format!("|{}\n", " --- |".repeat(line.len()));
        }
    }
    text.replace("|  |", "| |")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::spec::Spec;
    use serde_json::json;

    const TABLE: &str = r#"
        [[table]]
        name = "t"
        runs = ["r"]
        scope = "whole"
        head = "workload"
        columns = [
            { head = "ordered", pick = { sync = "ordered" } },
            { head = "ratio", over = { sync = "ordered" }, as = "ratio", pick.sync = "eager" },
            { head = "paper", text = "paper" },
        ]
        rows = [
            { label = "KiB", pick = { workload = "a" }, value = "bytes/n/1024", text.paper = "x" },
        ]
    "#;

    fn spec(text: &str) -> Spec {
        let mut spec = Spec::default();
        spec.add(text).unwrap();
        spec
    }

    fn results() -> Vec<Results> {
        let record = |sync: &str, bytes: u64| {
            let value = json!({"workload": "a", "sync": sync, "whole.bytes": bytes, "whole.n": 2});
            value.as_object().unwrap().clone()
        };
        let records = vec![record("ordered", 4096), record("eager", 6144)];
        vec![Results { records, ..Results::default() }]
    }

    #[test]
    fn a_table_is_rows_and_columns_of_records() {
        let spec = spec(TABLE);
        let lines = cells(&spec.tables[0], &results()).unwrap();
        assert_eq!(
            markdown(&lines),
            "| workload | ordered | ratio | paper |\n| --- | --- | --- | --- |\n\
             | KiB | 2.00 | 1.50 | x |\n"
        );
        let metrics: Vec<String> = spec.metrics_of("r").into_iter().collect();
        assert_eq!(metrics, ["whole.bytes", "whole.n"]);
    }

    #[test]
    fn what_picks_none_or_several_is_an_error() {
        let spec = spec(&TABLE.replace("pick = { sync = \"ordered\" } }", "}"));
        let error = cells(&spec.tables[0], &results()).unwrap_err();
        assert!(error.contains("2 records") && error.contains("row KiB"), "{error}");
        let error = cells(&self::spec(TABLE).tables[0], &[]).unwrap_err();
        assert!(error.contains("no record"), "{error}");
        let spec = self::spec(&TABLE.replace("bytes/n", "gone/n"));
        assert!(cells(&spec.tables[0], &results()).unwrap_err().contains("no metric gone"));
    }

    #[test]
    fn rows_follow_the_values_of_a_key() {
        let text = "[[table]]\nname = \"t\"\nruns = [\"r\"]\nscope = \"whole\"\neach = \"sync\"\n\
            names = { ordered = \"as Linux\" }\ncolumns = [{ head = \"b\", value = \"bytes\" }]\n";
        let lines = cells(&spec(text).tables[0], &results()).unwrap();
        assert_eq!(lines[1], ["as Linux", "4,096"]);
        assert_eq!(lines[2], ["eager", "6,144"]);
        let without = text.replace("as Linux", "");
        assert_eq!(cells(&spec(&without).tables[0], &results()).unwrap().len(), 2);
        for (field, rows) in [("sync", 3), ("paper", 1)] {
            let filled = text.replace("each =", &format!("filled = \"{field}\"\neach ="));
            assert_eq!(cells(&spec(&filled).tables[0], &results()).unwrap().len(), rows, "{field}");
        }
    }

    #[test]
    fn numbers_have_their_forms() {
        assert_eq!(number(0.5, Format::Plain), "0.50");
        assert_eq!(number(9.996, Format::Plain), "10.0");
        assert_eq!(number(1234.6, Format::Plain), "1,235");
        assert_eq!(number(1.484, Format::Change), "+48 %");
        assert_eq!(number(0.93, Format::Change), "-7 %");
        assert_eq!(number(0.991, Format::Percent), "99 %");
        assert_eq!(number(f64::NAN, Format::Ratio), "-");
        assert_eq!(number(1_234_567.0, Format::Count), "1,234,567");
    }
}
