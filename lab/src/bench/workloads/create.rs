//! Small new files, each made durable, as mail, photos and downloads do.
use crate::latency::Timer;

use super::{Parameters, Workload, noise, random};
use crate::bench::target::{Open, Target};
use crate::error::Result;

struct Create {
    bytes: Vec<u8>,
}

pub(super) fn create(p: &Parameters, _: u64) -> Box<dyn Workload> {
    Box::new(Create { bytes: noise(&mut random(p.seed), 4096) })
}

impl Workload for Create {
    fn prepare(&mut self, target: &dyn Target) -> Result<()> {
        target.mkdir("/files")
    }

    fn open(&mut self, _: &dyn Target) -> Result<()> {
        Ok(())
    }

    fn step(&mut self, target: &dyn Target, step: u64, timer: &mut Timer) -> Result<()> {
        let mut file = target.open(&format!("/files/f{step:05}"), Open::New)?;
        file.write_at(0, &self.bytes)?;
        timer.time(|| target.now_ns(), || file.sync(false))
    }

    fn close(&mut self, _: &dyn Target) -> Result<()> {
        Ok(())
    }
}
