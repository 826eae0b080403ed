//! Policies that control a write buffer by what is known of the whole machine (informed-storage
//! paper, 6.6.7): pure functions of time and observations.
//!
//! ```text
//!   server, once a second:  Observation { now, buffer, session, power }
//!        --> Policies::decide --> each Policy --> Change { RamBytes, RamOn, Clean } --> Buffer
//! ```
//!
//! [`Governor`] is what a server keeps of them: the settings of `syncline ctl set` by name, the
//! policies that are on, and the thread that asks the services; [`socket`] is how `ctl` reaches it.
//! [`status`] counts what a mount or an NFS server does.
//!
//! A policy is one file in `policy` and one line in [`POLICIES`]. It keeps what it has to remember
//! and reads no clock; who observes decides how often. Tested in each file, second by second.

#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
pub mod dbus;
#[cfg(target_os = "linux")]
mod desktop;
#[cfg(target_os = "linux")]
mod governor;
#[cfg(target_os = "linux")]
pub mod hints;
mod policy;
mod ranks;
#[cfg(target_os = "linux")]
mod sensor;
#[cfg(target_os = "linux")]
pub mod socket;
pub mod status;
mod traffic;

use std::time::Duration;

#[cfg(target_os = "linux")]
pub use desktop::{Services, look};
#[cfg(target_os = "linux")]
pub use governor::{Governed, Governor};
use serde::{Deserialize, Serialize};

/// Activity of the user.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum Session {
    /// Nobody says.
    #[default]
    Unknown,
    /// Working.
    Active,
    /// Every session is idle or locked.
    Away,
}

/// State of the power supply.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum Power {
    /// Nobody says.
    #[default]
    Unknown,
    /// Mains, or a battery with enough charge.
    Good,
    /// The battery is low, or the machine is being switched off or suspended.
    Failing,
}

impl Session {
    /// Its word in documents.
    pub fn name(self) -> &'static str {
        match self {
            Session::Unknown => "unknown",
            Session::Active => "active",
            Session::Away => "away",
        }
    }
}

impl Power {
    /// Its word in documents.
    pub fn name(self) -> &'static str {
        match self {
            Power::Unknown => "unknown",
            Power::Good => "good",
            Power::Failing => "failing",
        }
    }
}

/// State of buffer, user and power at one moment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Observation {
    /// Since any fixed moment.
    pub now: Duration,
    /// Memory that the buffer may use, in bytes; 0 while it is off.
    pub ram_bytes: u64,
    /// Memory that it uses.
    pub ram_used_bytes: u64,
    /// True if any write waits in memory or log, or on a mount for write-back or a sync point.
    pub holds_data: bool,
    /// The user.
    pub session: Session,
    /// The power.
    pub power: Power,
}

/// Change that a policy asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    /// The buffer may use so much memory.
    RamBytes(u64),
    /// No write waits in memory, or they do again with the size of before.
    RamOn(bool),
    /// Everything goes to its place now.
    Clean,
}

impl std::fmt::Display for Change {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Change::RamBytes(bytes) => write!(out, "ram_bytes={bytes}"),
            Change::RamOn(true) => out.write_str("ram on"),
            Change::RamOn(false) => out.write_str("ram off"),
            Change::Clean => out.write_str("clean"),
        }
    }
}

/// One rule.
pub trait Policy: Send {
    /// Returns the change to make after this observation. Observations come in the order of time.
    fn decide(&mut self, seen: &Observation) -> Option<Change>;
}

/// Bounds of the size in memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Bytes, at least.
    pub ram_bytes_min: u64,
    /// Bytes, at most.
    pub ram_bytes_max: u64,
}

impl Default for Limits {
    /// A quarter of the paper's 16 MiB to four times that.
    fn default() -> Limits {
        Limits { ram_bytes_min: 4 << 20, ram_bytes_max: 64 << 20 }
    }
}

type Make = fn(Limits) -> Box<dyn Policy>;

/// Every policy: its name, and how one is made. The first that has a change has its way.
pub static POLICIES: [(&str, Make); 3] = [
    ("power", |_| Box::new(policy::PowerFails::default())),
    ("session", |_| Box::new(policy::SessionAway::default())),
    ("auto-ram", |limits| Box::new(policy::AutoRam::new(limits))),
];

/// Policies that are on, by name.
#[derive(Default)]
pub struct Policies(Vec<(&'static str, Box<dyn Policy>)>);

impl Policies {
    /// Switches one on or off. False: there is none of that name.
    pub fn switch(&mut self, name: &str, on: bool, limits: Limits) -> bool {
        let Some(place) = POLICIES.iter().position(|(known, _)| *known == name) else {
            return false;
        };
        let (known, make) = POLICIES[place];
        let order = |other: &str| POLICIES.iter().position(|(known, _)| *known == other);
        self.0.retain(|(other, _)| *other != known);
        if on {
            let at = self.0.iter().take_while(|(other, _)| order(other) < Some(place)).count();
            self.0.insert(at, (known, make(limits)));
        }
        true
    }

    /// Names of those that are on, in their order.
    pub fn names(&self) -> Vec<&'static str> {
        self.0.iter().map(|(name, _)| *name).collect()
    }

    /// Shows an observation to all; the first change, and whose it is.
    pub fn decide(&mut self, seen: &Observation) -> Option<(&'static str, Change)> {
        let mut first = None;
        for (name, policy) in &mut self.0 {
            let change = policy.decide(seen);
            first = first.or(change.map(|change| (*name, change)));
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_by_name_in_their_order() {
        let mut policies = Policies::default();
        for name in ["auto-ram", "session", "power", "session"] {
            assert!(policies.switch(name, true, Limits::default()));
        }
        assert!(!policies.switch("moon", true, Limits::default()));
        assert_eq!(policies.names(), ["power", "session", "auto-ram"]);
        assert!(policies.switch("session", false, Limits::default()));
        assert_eq!(policies.names(), ["power", "auto-ram"]);
    }

    #[test]
    fn failing_power_comes_before_a_larger_buffer() {
        let mut policies = Policies::default();
        for (name, _) in POLICIES {
            policies.switch(name, true, Limits::default());
        }
        let full = |seconds, power| Observation {
            now: Duration::from_secs(seconds),
            ram_bytes: 16 << 20,
            ram_used_bytes: 16 << 20,
            holds_data: true,
            power,
            ..Observation::default()
        };
        for second in 0..3 {
            assert_eq!(policies.decide(&full(second, Power::Good)), None);
        }
        let decided = policies.decide(&full(3, Power::Failing));
        assert_eq!(decided, Some(("power", Change::RamOn(false))));
    }
}
