//! Sending: the data of several batches as one plug.

use std::sync::atomic::Ordering;

use syncline_device::{Origin, Plug};

use crate::data::Files;
use crate::data::flush::batch::{Job, OutPage};
use crate::error::{FsError, Result};

/// Writes the data in place: one plug, gathered from the pages without a copy.
pub(crate) fn send_jobs(files: &Files, jobs: &[Job<'_>], sync: bool) -> Result<()> {
    let (mut plug, mut pages) = (Plug::new(), 0);
    for job in jobs.iter().filter(|job| job.result.is_ok()) {
        pages += queue_pages(files, job, sync, &mut plug);
    }
    plug.submit(&*files.dev).map_err(|err| files.fail(FsError::Io(err)))?;
    files.pages.written.fetch_add(pages, Ordering::Relaxed);
    Ok(())
}

/// Adds the pages that have to go to their places, and counts them.
fn queue_pages<'a>(files: &Files, job: &'a Job<'_>, sync: bool, plug: &mut Plug<'a>) -> u64 {
    let strict = job.inode.origin(sync);
    let (mut pages, mut count) = (job.pages.as_slice(), 0);
    for segment in &job.segments {
        let (these, rest) = pages.split_at((segment.len as usize).min(pages.len()));
        pages = rest;
        let durability = files.relaxed.durability_of(job.inode, segment.is_plain());
        let origin = Origin { durability, ..strict };
        let written = |out: &OutPage| out.action.is_write();
        // Pages of a segment are consecutive blocks.
        for run in these.chunk_by(|a, b| written(a) == written(b)) {
            let Some(first) = run.first().filter(|first| written(first)) else { continue };
            let offset = files.block_offset(first.place);
            plug.write_run(offset, run.iter().map(|out| &*out.page.data), origin);
            count += run.len() as u64;
        }
    }
    count
}
