//! Making, checking and recovering images.

use std::ffi::{CString, c_char, c_int, c_void};

use syncline::Make;

use crate::pointers::{count, exports, status, text_of};
use crate::table::{in_callback, without};
use crate::volumes::{Report, host_path};

exports! {
    fn syncline_mkfs(path: *const c_char, size_bytes: u64, label: *const c_char,
                     force: c_int) -> c_int {
        status(without(|| {
            // SAFETY: the caller promises both.
            let (path, label) = unsafe { (host_path(path)?, text_of(label)?) };
            let make = Make::default().with(|make| {
                make.size_bytes = (size_bytes > 0).then_some(size_bytes);
                make.label = label.map(str::to_owned);
                make.force = force != 0;
            });
            make.image(path)
        }))
    }
}

/// Gets the context and one finding.
type Say = unsafe extern "C" fn(*mut c_void, *const c_char);

exports! {
    fn syncline_check(path: *const c_char, say: Option<Say>, context: *mut c_void) -> i64 {
        count(without(|| {
            // SAFETY: the caller promises it.
            let path = unsafe { host_path(path) }?;
            let report = syncline::check(path, &mut |_| true)?;
            for finding in report.findings.iter().filter(|finding| finding.is_error) {
                let Some(say) = say else { break };
                // Without zero bytes it is a C string.
                let text = CString::new(finding.to_string().replace('\0', " ")).unwrap_or_default();
                // SAFETY: the caller promises it.
                in_callback(|| unsafe { say(context, text.as_ptr()) });
            }
            Ok(report.errors)
        }))
    }

    fn syncline_recover(path: *const c_char, report: *mut Report) -> c_int {
        status(without(|| {
            // SAFETY: the caller promises it.
            let done = syncline::Disk::recover(unsafe { host_path(path) }?)?;
            if !report.is_null() {
                // SAFETY: not null, and the caller promises the rest.
                unsafe { report.write(Report::of(&done, false)) };
            }
            Ok(())
        }))
    }
}
