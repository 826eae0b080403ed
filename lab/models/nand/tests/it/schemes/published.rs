//! Every published figure of every profile, within 20 %.

use syncline_nand::calibration::WITHIN_PERCENT;
use syncline_nand::{Profile, profiles};

#[test]
fn profiles_give_the_published_figures() {
    let mut far = Vec::new();
    for (name, _) in profiles() {
        let profile = Profile::by_name(name).unwrap();
        for check in &profile.checks {
            let ours = check.figure.measure(&profile).unwrap();
            let percent = (ours / check.published - 1.0) * 100.0;
            let figure = check.figure.name();
            let line = format!("{name:16} {figure:30} {:10} {ours:10.4}", check.published);
            println!("{line} {percent:+7.1} % {}", check.excluded.as_deref().unwrap_or(""));
            if check.excluded.is_none() && percent.abs() > WITHIN_PERCENT {
                far.push(line);
            }
        }
    }
    assert!(far.is_empty(), "{far:#?}");
}
