//! Arguments that make no sense: usage, and nothing on standard output.

use crate::support::run;

#[test]
fn bad_arguments_are_usage() {
    for arguments in [
        &["bench", "no-such-workload"][..],
        &["bench", "create", "--sync", "no-such-mode"],
        &["bench", "create", "--device", "no-such-device"],
        &["bench", "create", "--journal-mode", "no-such-mode"],
        &["bench", "create", "--synchronous", "often"],
        &["bench", "create", "--operations", "0"],
        &["bench", "create", "-o", "no-such-option"],
        &["bench", "create", "--policy", "no-such-policy"],
        &["devices", "no-such-device"],
    ] {
        let ran = run(arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {}", ran.err);
        assert_eq!(ran.text(), "", "{arguments:?}");
    }
}
