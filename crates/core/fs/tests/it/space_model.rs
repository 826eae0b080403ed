//! Files against byte arrays: writes, truncation, preallocation, holes, syncs and remounts in
//! random order, on extents and on block maps; e2fsck judges every image at the end.
//!
//! A failure prints the seed; `SYNCLINE_SEED=n cargo test -p syncline-fs --test it space_model::`
//! reruns it.

use crate::bed::{Bed, contents};
use syncline_fs::{FallocateMode, FsError, InodeRef, Volume};
use syncline_testkit::{ImageSpec, Need, Random, require};

/// Files of at most this many bytes, so that operations overlap often.
const LIMIT: u64 = 3 << 20;

struct Run {
    vol: Option<Volume>,
    bed: Bed,
    inos: Vec<u32>,
    model: Vec<Vec<u8>>,
    random: Random,
    extents: bool,
    log: Vec<String>,
}

impl Run {
    fn new(spec: &ImageSpec, seed: u64) -> Run {
        let bed = Bed::new(spec, 3).with("cache=4M");
        let inos = bed.inos.clone();
        let vol = Some(bed.mount(""));
        let model = vec![Vec::new(); inos.len()];
        let extents = spec.fs_type == "ext4";
        Run { vol, bed, inos, model, random: Random::new(seed), extents, log: Vec::new() }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random.below(n)
    }

    /// A range; often aligned to blocks, often touching the end of the file.
    fn range(&mut self, size: u64) -> (u64, u64) {
        let mut offset = match self.below(4) {
            0 => self.below(LIMIT),
            1 => size.saturating_sub(self.below(20_000)),
            _ => self.below(size + 5000),
        };
        let most = [300, 9000, 150_000, 1 << 20][self.below(4) as usize];
        let mut len = 1 + self.below(most);
        if self.below(2) == 0 {
            offset &= !4095;
            len = (len + 4095) & !4095;
        }
        (offset.min(LIMIT - 1), len.min(LIMIT - offset.min(LIMIT - 1)))
    }

    fn step(&mut self) {
        let which = self.below(self.inos.len() as u64) as usize;
        let size = self.model[which].len() as u64;
        let (offset, len) = self.range(size);
        let choice = self.below(16);
        self.log.push(format!("file {which} size {size}: op {choice} {offset}+{len}"));
        let vol = self.vol.take().expect("mounted");
        let file = vol.iget(self.inos[which]).expect("the file is there");
        match choice {
            0..=5 => self.write(&vol, &file, which, offset, len),
            6 | 7 => {
                let to = if self.below(4) == 0 { 0 } else { offset };
                vol.truncate(&file, to).expect("truncates");
                self.model[which].resize(to as usize, 0);
            }
            8..=12 => self.fallocate(&vol, &file, which, (offset, len), choice),
            13 => vol.fsync(&file, self.below(2) == 0).expect("syncs"),
            14 => self.compare(&vol, &file, which),
            _ => {
                drop(file);
                if self.below(3) == 0 {
                    vol.unmount().expect("unmounts");
                    self.vol = Some(self.bed.mount(""));
                } else {
                    vol.syncfs().expect("syncs");
                    self.vol = Some(vol);
                }
                return;
            }
        }
        drop(file);
        self.vol = Some(vol);
    }

    fn write(&mut self, vol: &Volume, file: &InodeRef, which: usize, offset: u64, len: u64) {
        let byte = 1 + self.below(255) as u8;
        let data: Vec<u8> = (0..len).map(|i| byte ^ (i >> 9) as u8).collect();
        let mut done = 0;
        while done < data.len() {
            match vol.write(file, offset + done as u64, &data[done..]) {
                Ok(n) => done += n,
                Err(FsError::NoSpace) => break,
                Err(error) => panic!("write: {error}"),
            }
        }
        let end = offset as usize + done;
        if done > 0 {
            let model = &mut self.model[which];
            if model.len() < end {
                model.resize(end, 0);
            }
            model[offset as usize..end].copy_from_slice(&data[..done]);
        }
    }

    fn fallocate(
        &mut self,
        vol: &Volume,
        file: &InodeRef,
        which: usize,
        (offset, len): (u64, u64),
        choice: u64,
    ) {
        let mode = match choice {
            8 => FallocateMode::Allocate,
            9 => FallocateMode::KeepSize,
            10 | 11 => FallocateMode::PunchHole,
            _ if self.below(2) == 0 => FallocateMode::ZeroRange,
            _ => FallocateMode::ZeroRangeKeepSize,
        };
        let done = vol.fallocate(file, mode, offset, len);
        if !self.extents && mode != FallocateMode::PunchHole {
            assert!(matches!(done, Err(FsError::NotSupported(_))), "{done:?}");
            return;
        }
        let model = &mut self.model[which];
        let size = model.len() as u64;
        let end = offset + len;
        match (mode, done) {
            (_, Ok(())) => {
                let grows = matches!(mode, FallocateMode::Allocate | FallocateMode::ZeroRange);
                if grows && end > size {
                    model.resize(end as usize, 0);
                }
                if !matches!(mode, FallocateMode::Allocate | FallocateMode::KeepSize) {
                    let to = (end as usize).min(model.len());
                    model[(offset as usize).min(to)..to].fill(0);
                }
            }
            (FallocateMode::PunchHole, Err(error)) => panic!("{mode:?}: {error}"),
            // Zeroing may have got as far as it did: what is there now is legal if it is old or
            // zero.
            (_, Err(FsError::NoSpace)) => {
                let now = contents(vol, file);
                assert_eq!(now.len(), model.len());
                for (i, (new, old)) in now.iter().zip(model.iter()).enumerate() {
                    let inside = (offset..end).contains(&(i as u64));
                    assert!(new == old || (inside && *new == 0), "byte {i} after {mode:?}");
                }
                *model = now;
            }
            (_, Err(error)) => panic!("{mode:?}: {error}"),
        }
    }

    fn compare(&mut self, vol: &Volume, file: &InodeRef, which: usize) {
        let (now, model) = (contents(vol, file), &self.model[which]);
        assert_eq!(now.len(), model.len(), "size of file {which}");
        if let Some(at) = now.iter().zip(model).position(|(a, b)| a != b) {
            panic!("file {which} differs at byte {at}: {} instead of {}", now[at], model[at]);
        }
        // What the volume calls a hole reads as zeros.
        let mut at = 0;
        while at < model.len() as u64 {
            let data = vol.seek_data(file, at).unwrap_or(model.len() as u64);
            let hole = &model[at as usize..data as usize];
            assert!(hole.iter().all(|byte| *byte == 0), "data in the hole {at}..{data}");
            if data >= model.len() as u64 {
                break;
            }
            at = vol.seek_hole(file, data).expect("the end is a hole");
            assert!(at > data);
        }
    }

    fn finish(mut self) {
        for round in 0..2 {
            let vol = self.vol.take().expect("mounted");
            for which in 0..self.inos.len() {
                let file = vol.iget(self.inos[which]).expect("the file is there");
                self.compare(&vol, &file, which);
            }
            vol.unmount().expect("unmounts");
            self.bed.judge(&format!("round {round}"));
            self.vol = Some(self.bed.mount(""));
        }
    }
}

fn run(test: &str, spec: &ImageSpec, steps: usize) {
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    let seed = std::env::var("SYNCLINE_SEED").ok().and_then(|s| s.parse().ok());
    for seed in seed.map_or(1..5, |seed: u64| seed..seed + 1) {
        println!("{test}: seed {seed}");
        let mut run = Run::new(spec, seed);
        let stepped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..steps {
                run.step();
            }
        }));
        if let Err(panic) = stepped {
            let from = run.log.len().saturating_sub(30);
            eprintln!("seed {seed}, last steps:\n{}", run.log[from..].join("\n"));
            std::panic::resume_unwind(panic);
        }
        run.finish();
    }
}

#[test]
fn extents_with_4_kib_blocks() {
    run("extents_with_4_kib_blocks", &ImageSpec::with_size(32 << 20), 600);
}

#[test]
fn extents_with_1_kib_blocks() {
    let spec = ImageSpec { block_size_bytes: 1024, ..ImageSpec::with_size(32 << 20) };
    run("extents_with_1_kib_blocks", &spec, 600);
}

#[test]
fn extents_on_a_volume_that_is_too_small() {
    let spec = ImageSpec {
        block_size_bytes: 1024,
        journal_size_mib: Some(1),
        ..ImageSpec::with_size(6 << 20)
    };
    run("extents_on_a_volume_that_is_too_small", &spec, 600);
}

#[test]
fn block_maps_with_1_kib_blocks() {
    let spec =
        ImageSpec { block_size_bytes: 1024, fs_type: "ext3", ..ImageSpec::with_size(32 << 20) };
    run("block_maps_with_1_kib_blocks", &spec, 600);
}
