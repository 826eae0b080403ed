//! `probe`: what a path, a block device or a profile can do, and a profile that does the same.

use syncline_lab::experiments::Probe as Request;

use crate::about;
use crate::args::Probe;
use crate::progress::Terminal;
use syncline_cli::error::Result;
use syncline_cli::format::{self, Forms};
use syncline_cli::interrupt;

/// Measures, fits and prints.
pub(crate) fn run(args: &Probe) -> Result<()> {
    format::check_outputs(&[args.json.as_deref(), args.html.as_deref(), args.fit.as_deref()])?;
    let request = Request {
        target: args.target.clone(),
        size: args.size,
        requests: args.requests,
        bytes: args.bytes,
        seconds: args.seconds,
        sustain: args.sustain,
        precondition: args.precondition,
        seed: args.seed,
        destroy: args.destroy,
        fit: args.fit.clone(),
        tries: args.tries,
    };
    let document = request.run(&Terminal::default())?;
    let forms = Forms {
        table: &|| document.text(),
        json: &|| document.to_json(),
        page: &|| document.html(&about()),
    };
    format::publish(&forms, args.json.as_deref(), args.html.as_deref())?;
    interrupt::check()
}
