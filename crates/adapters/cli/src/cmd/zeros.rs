//! `buffer zeros`: how many pages of files describe themselves in a write log.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::json;
use syncline_buffer::{PAGE_BYTES, describes_itself};

use crate::args::BufferZeros;
use crate::error::{Failure, Result};
use crate::format::{self, Out};
use crate::interrupt;

/// Zero words that the paper's entry needs, behind its two.
const PAPER_WORDS: usize = 2;

#[derive(Clone, Copy, Default)]
struct Pages {
    all: u64,
    described: u64,
    paper: u64,
}

/// Counts and prints.
pub(crate) fn run(args: &BufferZeros) -> Result<()> {
    let counted = args.files.iter().map(|path| Ok((path, count(path)?)));
    let counted = counted.collect::<Result<Vec<_>>>()?;
    let mut out = Out::new();
    if args.json {
        let files: Vec<_> = counted
            .iter()
            .map(|(path, pages)| {
                json!({
                    "file": path.display().to_string(), "pages": pages.all,
                    "self_describing_pages": pages.described, "two_zero_words_pages": pages.paper,
                })
            })
            .collect();
        out.text(format!("{:#}\n", json!({ "schema": "syncline.zeros/1", "files": files })))?;
        return out.flush();
    }
    let header = ["file", "pages", "self-describing %", "two zero words %"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    let mut sum = Pages::default();
    for (path, pages) in &counted {
        rows.push(row(&path.display().to_string(), *pages));
        sum.all += pages.all;
        sum.described += pages.described;
        sum.paper += pages.paper;
    }
    if counted.len() > 1 {
        rows.push(row("all", sum));
    }
    out.text(format::table(&rows, &[false, true, true, true]))?;
    out.flush()
}

fn row(name: &str, pages: Pages) -> Vec<String> {
    let share = |n: u64| match pages.all {
        0 => "-".to_owned(),
        all => format!("{:.1}", n as f64 / all as f64 * 100.0),
    };
    vec![name.to_owned(), pages.all.to_string(), share(pages.described), share(pages.paper)]
}

fn count(path: &Path) -> Result<Pages> {
    let failed = |err: std::io::Error| Failure::host(path, &err);
    let mut file = File::open(path).map_err(failed)?;
    let mut pages = Pages::default();
    loop {
        let mut page = [0; PAGE_BYTES];
        let mut len = 0;
        while len < PAGE_BYTES {
            match file.read(&mut page[len..]).map_err(failed)? {
                0 => break,
                n => len += n,
            }
        }
        if len == 0 {
            return Ok(pages);
        }
        interrupt::check()?;
        let zeros = page.chunks_exact(4).skip(PAPER_WORDS).filter(|word| **word == [0; 4]);
        pages.all += 1;
        pages.paper += u64::from(zeros.count() >= PAPER_WORDS);
        pages.described += u64::from(describes_itself(&page));
    }
}
