//! A pass of write-back over the batches of several files.

use crate::data::Files;
use crate::data::flush::batch::{Job, zero_behind_end};
use crate::data::flush::install::finish_job;
use crate::data::flush::plan::plan_batch;
use crate::data::flush::send::send_jobs;
use crate::error::Result;

/// Plans each job, sends the data of all, installs each. Each job has its own result; the pages of
/// a failed job are dirty again.
pub(crate) fn write_jobs(files: &Files, jobs: &mut [Job<'_>], sync: bool) {
    for job in jobs.iter_mut() {
        job.result = prepare_job(files, job);
    }
    let sent = send_jobs(files, jobs, sync);
    for job in jobs {
        if job.result.is_ok() {
            job.result = sent.clone();
        }
        if job.result.is_ok() {
            job.result = files.engine.on_data_written(files, job);
        }
        finish_job(files, job);
    }
}

fn prepare_job(files: &Files, job: &mut Job<'_>) -> Result<()> {
    zero_behind_end(files, &mut job.pages, job.size);
    let target = files.engine.target(files, job.inode)?;
    plan_batch(files, job.inode, &mut job.pages, target, &mut job.segments)?;
    files.engine.classify(files, job)
}
