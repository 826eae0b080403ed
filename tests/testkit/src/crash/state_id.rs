//! The name of a crash state: where the cut is and which optional writes are there.
//!
//! ```text
//!   SEED:POINT:CHOICE[/SEED:POINT:CHOICE]      the part after `/` is a cut within recovery
//!   POINT   12     after 12 log entries     12+   entry 12 (a batch) is under way
//!   CHOICE  x3f    these optional writes (bit 0 is the oldest)     y3f   these of their sectors
//!           c4     the 4 oldest      d4  all but number 4           o4    only number 4
//!           t4.2   the 4 oldest and 2 sectors of number 4           u4.2  all, but 2 sectors of it
//!           s7     sample 7, drawn from the seed and the point
//! ```

use std::fmt;
use std::str::FromStr;

use crate::crash::CrashError;

/// Point in the log at which the power was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Point {
    /// Entries of the log that had completed.
    pub entries: usize,
    /// True if the next entry, a batch, was under way.
    pub in_flight: bool,
}

/// Subset of the optional writes, numbered from the oldest, that is on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Choice {
    /// Those whose bit is set.
    Subset(u64),
    /// Those sectors (of all of them in order) whose bit is set.
    Sectors(u64),
    /// The oldest so many.
    Cut(usize),
    /// All but this one.
    Drop(usize),
    /// Only this one.
    Only(usize),
    /// All older than the first number, and of that one so many sectors.
    TornCut(usize, u64),
    /// All, but of this one only so many sectors.
    TornOne(usize, u64),
    /// Drawn at random at sector granularity.
    Sample(u64),
}

/// The name of a state. Rebuild it with [`crate::crash::Explorer::state`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StateId {
    /// Seed of the samples.
    pub seed: u64,
    /// Point of the cut.
    pub point: Point,
    /// The choice for each write.
    pub choice: Choice,
    /// A further cut while the state is being recovered.
    pub inner: Option<Box<StateId>>,
}

impl fmt::Display for StateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plus = if self.point.in_flight { "+" } else { "" };
        write!(f, "{}:{}{plus}:{}", self.seed, self.point.entries, self.choice)?;
        match &self.inner {
            Some(inner) => write!(f, "/{inner}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Subset(mask) => write!(f, "x{mask:x}"),
            Choice::Sectors(mask) => write!(f, "y{mask:x}"),
            Choice::Cut(n) => write!(f, "c{n}"),
            Choice::Drop(n) => write!(f, "d{n}"),
            Choice::Only(n) => write!(f, "o{n}"),
            Choice::TornCut(n, sectors) => write!(f, "t{n}.{sectors}"),
            Choice::TornOne(n, sectors) => write!(f, "u{n}.{sectors}"),
            Choice::Sample(n) => write!(f, "s{n}"),
        }
    }
}

impl FromStr for StateId {
    type Err = CrashError;

    fn from_str(text: &str) -> Result<Self, CrashError> {
        let bad = || CrashError::BadId { text: text.to_string() };
        let (outer, inner) = match text.split_once('/') {
            Some((outer, inner)) => (outer, Some(Box::new(inner.parse().map_err(|_| bad())?))),
            None => (text, None),
        };
        let mut parts = outer.trim().split(':');
        let (Some(seed), Some(point), Some(choice), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(bad());
        };
        let in_flight = point.ends_with('+');
        let entries = point.strip_suffix('+').unwrap_or(point).parse().map_err(|_| bad())?;
        let seed = seed.parse().map_err(|_| bad())?;
        let choice = parse_choice(choice).ok_or_else(bad)?;
        Ok(StateId { seed, point: Point { entries, in_flight }, choice, inner })
    }
}

fn parse_choice(text: &str) -> Option<Choice> {
    let (letter, rest) = text.split_at_checked(1)?;
    let number = || rest.parse().ok();
    let torn = || {
        let (n, sectors) = rest.split_once('.')?;
        Some((n.parse().ok()?, sectors.parse().ok()?))
    };
    Some(match letter {
        "x" => Choice::Subset(u64::from_str_radix(rest, 16).ok()?),
        "y" => Choice::Sectors(u64::from_str_radix(rest, 16).ok()?),
        "c" => Choice::Cut(number()?),
        "d" => Choice::Drop(number()?),
        "o" => Choice::Only(number()?),
        "t" => torn().map(|(n, s)| Choice::TornCut(n, s))?,
        "u" => torn().map(|(n, s)| Choice::TornOne(n, s))?,
        "s" => Choice::Sample(rest.parse().ok()?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_round_trip() {
        let texts = [
            "0:0:c0",
            "7:12+:x3f",
            "1:2:yff",
            "1:2:d3",
            "1:2:o3",
            "9:4+:t4.2",
            "9:4:u0.1",
            "1:2:s9",
        ];
        for text in texts {
            assert_eq!(text.parse::<StateId>().unwrap().to_string(), text);
        }
        let nested = "7:12+:x3f/7:5:c2";
        assert_eq!(nested.parse::<StateId>().unwrap().to_string(), nested);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in
            ["", ":", "1:2", "1:2:", "1:2:z1", "1:2:x", "1:2:t4", "1:2:c1:3", "1:-2:c1", "/"]
        {
            assert!(text.parse::<StateId>().is_err(), "{text}");
        }
    }
}
