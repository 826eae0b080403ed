//! Mount options: each row of the table is taken by the parser.

use syncline_fs::options::spec::Kind;
use syncline_fs::{MountOptions, VOLUME_OPTIONS};

/// A value that a row of this form takes, if it takes any.
fn example(name: &str, kind: Kind) -> String {
    match kind {
        Kind::Flag => name.to_owned(),
        Kind::Number { high, .. } | Kind::OptionalNumber { high, .. } => format!("{name}={high}"),
        Kind::Size { .. } => format!("{name}=64M"),
        Kind::Choice(words) => format!("{name}={}", words.last().expect("a choice has words")),
        Kind::Text(_) => format!("{name}=x"),
    }
}

#[test]
fn every_row_is_parsed_and_its_default_is_taken() {
    for row in VOLUME_OPTIONS {
        let item = example(row.name, row.kind);
        MountOptions::parse(&item).unwrap_or_else(|err| panic!("{item}: {err}"));
        let beyond = match row.kind {
            Kind::Flag => format!("{}=1", row.name),
            Kind::Text(_) => format!("{}=", row.name),
            Kind::Choice(_) => format!("{}=none-of-these", row.name),
            Kind::Number { high, .. } | Kind::OptionalNumber { high, .. } => {
                format!("{}={}", row.name, u64::from(high) + 1)
            }
            Kind::Size { .. } => format!("{}=0", row.name),
        };
        assert!(MountOptions::parse(&beyond).is_err(), "{beyond}");
        // The default, given, changes nothing.
        if let Some(value) = row.default_value() {
            let same = if row.kind == Kind::Flag {
                row.name.to_owned()
            } else {
                format!("{}={value}", row.name)
            };
            assert_eq!(MountOptions::parse(&same), Ok(MountOptions::default()), "{same}");
        }
    }
}
