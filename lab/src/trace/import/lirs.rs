//! The traces of the LIRS papers: a page number a line; `*` is a mark.

use super::text::number;
use super::{ImportOptions, Line, Out, Parser, Sample};
use crate::error::Result;
use crate::trace::model::{Op, Record};

const PAGE_BYTES: u64 = 4096;

pub(super) fn detect(sample: &Sample<'_>) -> bool {
    sample.most(|line| line.trim() == "*" || number(line).is_some())
}

pub(super) fn parser(_: &ImportOptions) -> Result<Box<dyn Parser>> {
    Ok(Box::new(Pages))
}

struct Pages;

impl Parser for Pages {
    fn line(&mut self, line: &str, out: &mut Out<'_>) -> Line {
        if line.trim() == "*" {
            out.pass_over();
            return Ok(());
        }
        let page = number(line).ok_or("no page number")?;
        let offset = page.checked_mul(PAGE_BYTES).ok_or("the page number is too large")?;
        out.push(Record::new(0, Op::Read).range(offset, PAGE_BYTES))
    }
}
