//! Mount options: each row of the table is taken by the parser.

use syncline_fs::options::spec::Form;
use syncline_fs::{FsError, MountOptions, VOLUME_OPTIONS};

#[test]
fn every_row_is_parsed_and_its_default_is_taken() {
    for row in VOLUME_OPTIONS {
        let given = |value: &str| format!("{}={value}", row.name);
        let above = |high: u32| given(&(u64::from(high) + 1).to_string());
        let (taken, refused) = match &row.form {
            Form::Flag(_) => (row.name.to_owned(), given("1")),
            Form::Number { high, .. } | Form::OptionalNumber { high, .. } => {
                (given(&high.to_string()), above(*high))
            }
            Form::Size { .. } => (given("64M"), given("0")),
            Form::Choice(words) => {
                (given(words.last().expect("a choice has words").0), given("none-of-these"))
            }
            Form::Text { .. } if row.name == "policy" => (given("lru"), given("min")),
            Form::Text { .. } => (given("x"), given("")),
        };
        MountOptions::parse(&taken).unwrap_or_else(|err| panic!("{taken}: {err}"));
        assert!(MountOptions::parse(&refused).is_err(), "{refused}");
        // The default, given, changes nothing.
        if let Some(value) = row.default_value() {
            let same = match &row.form {
                Form::Flag(_) => row.name.to_owned(),
                _ => given(&value),
            };
            assert_eq!(MountOptions::parse(&same), Ok(MountOptions::default()), "{same}");
        }
    }
}

/// The items of a set of options give the same set, for each option.
#[test]
fn items_give_the_options_again() {
    for row in VOLUME_OPTIONS {
        let given = |value: &str| format!("{}={value}", row.name);
        let lists: Vec<String> = match &row.form {
            Form::Flag(_) => vec![row.name.to_owned()],
            Form::Number { high, .. } => vec![given(&high.to_string())],
            Form::OptionalNumber { words, .. } => {
                [row.name.to_owned()].into_iter().chain(words.iter().map(|w| given(w.0))).collect()
            }
            Form::Size { .. } => vec![given("5000000")],
            Form::Choice(words) => words.iter().map(|(word, _)| given(word)).collect(),
            Form::Text { .. } if row.name == "policy" => vec![given("lru")],
            Form::Text { .. } => vec![format!("{},{}", given("x*"), given("y"))],
        };
        for list in lists {
            let options = MountOptions::parse(&list).unwrap();
            let items = options.items().unwrap_or_else(|| panic!("{list}"));
            assert_eq!(MountOptions::parse(&items.join(",")), Ok(options), "{list}: {items:?}");
        }
    }
    let both = MountOptions::parse("alloc=lifetime,hot_zones=3,undelete").unwrap();
    assert_eq!(MountOptions::parse(&both.items().unwrap().join(",")), Ok(both));
    assert_eq!(MountOptions::default().with(|options| options.privileged = false).items(), None);
}

/// Each word of a choice sets the value that is shown by the same word.
#[test]
fn choices_show_the_word_that_was_given() {
    for row in VOLUME_OPTIONS {
        let Form::Choice(words) = &row.form else { continue };
        for (word, _) in *words {
            let options = MountOptions::parse(&format!("{}={word}", row.name)).unwrap();
            let shown = (row.show)(&options);
            assert!(shown.as_deref().is_none_or(|shown| shown == *word), "{} {word}", row.name);
        }
    }
}

#[test]
fn an_unknown_policy_is_refused_with_the_known_names() {
    let error = MountOptions::parse("policy=random").unwrap_err();
    assert!(matches!(error, FsError::Invalid(ref text) if text.contains("clock")), "{error}");
}
