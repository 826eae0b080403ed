//! Metrics of one run, by name.
//!
//! A document of a command becomes names with points: `metrics` of a run is left out of the name,
//! an element of a list has its number, or the values of its keys that are words. Tested here.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use syncline_device::TraceEvent;

/// Figures of a run, and its block trace where it was asked for.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    figures: BTreeMap<String, f64>,
    /// Commands that reached the device, for a plot.
    pub events: Vec<TraceEvent>,
    /// Commands that the trace has no room for.
    pub events_lost: u64,
}

impl Measured {
    /// Every number of something that serialises.
    pub fn of(value: &impl Serialize) -> Measured {
        let mut measured = Measured::default();
        // Structs of numbers and strings always serialise; without figures the row says so.
        let value = serde_json::to_value(value).unwrap_or_default();
        measured.take("", &value);
        measured
    }

    /// One figure more.
    pub fn with(mut self, name: &str, value: f64) -> Measured {
        self.figures.insert(name.to_owned(), value);
        self
    }

    /// A figure.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.figures.get(name).copied()
    }

    /// Names of all figures.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.figures.keys().map(String::as_str)
    }

    fn take(&mut self, name: &str, value: &Value) {
        let below = |key: &str| match (name, key) {
            ("", key) => key.to_owned(),
            (name, key) => format!("{name}.{key}"),
        };
        match value {
            Value::Number(number) => {
                if let Some(number) = number.as_f64() {
                    self.figures.insert(name.to_owned(), number);
                }
            }
            Value::Object(fields) => {
                for (key, value) in fields {
                    let key = if key == "metrics" { name.to_owned() } else { below(key) };
                    self.take(&key, value);
                }
            }
            Value::Array(elements) => {
                for (number, value) in elements.iter().enumerate() {
                    self.take(&below(&number.to_string()), value);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_have_the_names_of_their_places() {
        let document = json!({"workload": "w", "metrics": {"bytes": 3}, "foreground": {"bytes": 2},
            "cases": [{"mean": 0.5}, {"mean": 1.5, "none": null}]});
        let measured = Measured::of(&document).with("more", 7.0);
        assert_eq!(measured.get("bytes"), Some(3.0));
        assert_eq!(measured.get("foreground.bytes"), Some(2.0));
        assert_eq!(measured.get("cases.1.mean"), Some(1.5));
        let names: Vec<_> = measured.names().collect();
        assert_eq!(names, ["bytes", "cases.0.mean", "cases.1.mean", "foreground.bytes", "more"]);
    }
}
