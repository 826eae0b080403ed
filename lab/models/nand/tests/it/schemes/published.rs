//! Every published figure of every profile, within 20 % or its rounding, over the whole range of
//! open parameters.

use syncline_nand::{Profile, profiles};

#[test]
fn profiles_give_the_published_figures() {
    let mut far = Vec::new();
    for (name, _) in profiles() {
        for (profile, check) in Profile::by_name(name)
            .unwrap()
            .range()
            .unwrap()
            .iter()
            .flat_map(|profile| profile.checks.iter().map(move |check| (profile, check)))
        {
            let ours = profile.measure(check).unwrap();
            let percent = (ours / check.published - 1.0) * 100.0;
            let figure = check.figure.name();
            let line =
                format!("{:20} {figure:30} {:10} {ours:10.4}", profile.name, check.published);
            println!("{line} {percent:+7.1} % {}", check.excluded.as_deref().unwrap_or(""));
            if check.excluded.is_none() && !check.holds(ours) {
                far.push(line);
            }
        }
    }
    assert!(far.is_empty(), "{far:#?}");
}
