//! The applications that the write buffer's paper measured (informed-storage, 6.7.3): a SQLite
//! benchmark of thirteen phases, a mail client's first fetch, a browser on twenty sites.
//!
//! All of them write through SQLite and plain files and wait for nothing else: no network, no
//! processor time but that of system calls, so a run's time is its storage time.
//! [`crate::bench::Fjord`] runs them in the six configurations.

mod browsing;
mod email;
mod rlbench;

use rand_chacha::ChaCha8Rng;

use super::{Entry, below, entry, scaled};
use crate::error::{LabError, Result};

/// The applications, in the paper's order. `--operations` sets messages and sites, and
/// `scale_percent` their number without it; the phases of the benchmark are always thirteen,
/// `scale_percent` shortens them.
pub const APPLICATIONS: &[Entry] = &[
    entry(
        "fjord/rlbench",
        rlbench::PHASES,
        true,
        rlbench::rlbench,
        "thirteen phases: 1,000 inserts, 25,000 in a transaction, ... as the public benchmark",
    ),
    Entry {
        scales: true,
        ..entry(
            "fjord/email",
            100,
            true,
            email::email,
            "a message: header, body, flags, attachment",
        )
    },
    Entry {
        scales: true,
        ..entry(
            "fjord/browsing",
            20,
            true,
            browsing::browsing,
            "a site: cache files and their index",
        )
    },
];

/// The applications that `name` means: one, or all for `fjord`.
pub fn applications(name: &str) -> Result<Vec<&'static Entry>> {
    let found: Vec<_> = APPLICATIONS.iter().filter(|e| name == "fjord" || e.name == name).collect();
    if found.is_empty() {
        let names: Vec<_> = APPLICATIONS.iter().map(|e| e.name).collect();
        let names = names.join(", ");
        return Err(LabError::Usage(format!(
            "unknown application `{name}`; choose of {names}, or fjord for all"
        )));
    }
    Ok(found)
}

/// A length in bytes whose logarithm is even between those of `low` and `high`.
fn length(rng: &mut ChaCha8Rng, low: u64, high: u64) -> usize {
    let octaves = (high / low).max(1).ilog2().max(1);
    let octave = low << below(rng, u64::from(octaves));
    (octave + below(rng, octave)).min(high) as usize
}

/// Words of letters, `len` bytes.
fn prose(rng: &mut ChaCha8Rng, len: usize) -> String {
    let letter = |rng: &mut ChaCha8Rng| match below(rng, 6) {
        0 => ' ',
        _ => char::from(b'a' + below(rng, 26) as u8),
    };
    (0..len).map(|_| letter(rng)).collect()
}

/// Makes a directory's file of these bytes, written in the pieces of a stream, never synced.
fn save(target: &dyn crate::bench::target::Target, path: &str, bytes: &[u8]) -> Result<()> {
    const PIECE_BYTES: usize = 16 << 10;
    let mut file = target.open(path, crate::bench::target::Open::New)?;
    for (index, piece) in bytes.chunks(PIECE_BYTES).enumerate() {
        file.write_at((index * PIECE_BYTES) as u64, piece)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::workloads::Parameters;

    #[test]
    fn applications_are_found_and_others_refused() {
        assert_eq!(applications("fjord").unwrap().len(), 3);
        assert_eq!(applications("fjord/email").unwrap()[0].name, "fjord/email");
        let err = applications("fjord/mail").err().expect("refused").to_string();
        assert!(err.contains("choose of fjord/rlbench"), "{err}");
    }

    #[test]
    fn a_scale_sets_messages_and_sites_but_not_the_number_of_phases() {
        let operations = |scale_percent, operations| {
            let parameters = Parameters { scale_percent, operations, ..Parameters::default() };
            APPLICATIONS.iter().map(|entry| entry.operations(&parameters)).collect::<Vec<_>>()
        };
        assert_eq!(operations(100, None), [13, 100, 20]);
        assert_eq!(operations(4, None), [13, 4, 1]);
        assert_eq!(operations(300, None), [13, 300, 60]);
        assert_eq!(operations(4, Some(6)), [6, 6, 6]);
    }

    #[test]
    fn lengths_stay_within_their_limits() {
        let mut rng = super::super::random(3);
        let lengths: Vec<usize> = (0..1000).map(|_| length(&mut rng, 512, 60_000)).collect();
        assert!(lengths.iter().all(|&len| (512..=60_000).contains(&len)));
        assert!(lengths.iter().any(|&len| len < 1024) && lengths.iter().any(|&len| len > 20_000));
        assert_eq!((scaled(25_000, 100), scaled(100, 4), scaled(3, 1)), (25_000, 4, 1));
    }
}
