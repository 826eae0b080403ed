//! Device profiles: TOML in `profiles/`, embedded, overridable key by key.
//!
//! ```text
//!   nexus7-emmc                         a built-in profile
//!   nexus7-emmc:streams=4,flush_us=100  the same with two parameters changed
//!   ./my-card.toml:streams=1            a file
//!   sd-pny:host=reader                  the same part in another host
//! ```
//!
//! Every key is mandatory in a file, but published figures (`[[check]]`), `[hosts]`, the whole of
//! `[slc]`, `[zones]` and `[energy]`, and five keys that came later, `dispatch_us` (0), `protected`
//! (false), `barrier` (false), `handles` (1) and `initially_isolated` (false).
//! Keys are unique across tables, so that an override needs no table name. Unknown keys are errors.
//! Each profile says in `[source]` where its figures come from. Tested in `tests/it/profiles.rs`.
//! This file is long because it declares every key and lists every built-in profile.
//!
//! One part has one profile. `[hosts.NAME]` lists the parameters that differ in another host, and
//! a `[[check]]` names the host in which it was measured. A parameter that published figures leave
//! open is a table: `log_blocks = { value = 4, low = 1, high = 8 }`. [`Profile::range`] gives the
//! profiles that a conclusion has to hold on.

use crate::NandError;
use crate::calibration::Check;
use crate::counters::Counters;
use crate::geometry::{FREE_BLOCKS_MIN, Layout, NandGeometry, check};
use crate::timing::Timing;
use serde::{Deserialize, Serialize};
use std::path::Path;

mod spec;

pub use spec::Open;

/// Name and text of every built-in profile, in the order they are listed: devices of today, then
/// those of the papers.
const BUILT_IN: &[(&str, &str)] = &[
    ("ufs-4", include_str!("../../../../profiles/ufs-4.toml")),
    ("ufs-31", include_str!("../../../../profiles/ufs-31.toml")),
    ("ufs-zoned", include_str!("../../../../profiles/ufs-zoned.toml")),
    ("emmc-51", include_str!("../../../../profiles/emmc-51.toml")),
    ("sd-a2", include_str!("../../../../profiles/sd-a2.toml")),
    ("nvme-dramless", include_str!("../../../../profiles/nvme-dramless.toml")),
    ("nvme-plp", include_str!("../../../../profiles/nvme-plp.toml")),
    ("nvme-fdp", include_str!("../../../../profiles/nvme-fdp.toml")),
    ("nexus7-emmc", include_str!("../../../../profiles/nexus7-emmc.toml")),
    ("generic-emmc", include_str!("../../../../profiles/generic-emmc.toml")),
    ("ssd-850pro", include_str!("../../../../profiles/ssd-850pro.toml")),
    ("galaxy-s6-ufs", include_str!("../../../../profiles/galaxy-s6-ufs.toml")),
    ("sd-2012", include_str!("../../../../profiles/sd-2012.toml")),
    ("sd-transcend", include_str!("../../../../profiles/sd-transcend.toml")),
    ("sd-ridata", include_str!("../../../../profiles/sd-ridata.toml")),
    ("sd-sandisk", include_str!("../../../../profiles/sd-sandisk.toml")),
    ("sd-kingston", include_str!("../../../../profiles/sd-kingston.toml")),
    ("sd-wintec", include_str!("../../../../profiles/sd-wintec.toml")),
    ("sd-adata", include_str!("../../../../profiles/sd-adata.toml")),
    ("sd-pny", include_str!("../../../../profiles/sd-pny.toml")),
    ("sd-samsung-8g", include_str!("../../../../profiles/sd-samsung-8g.toml")),
    ("emmc-n900", include_str!("../../../../profiles/emmc-n900.toml")),
    ("emmc-nexus-s", include_str!("../../../../profiles/emmc-nexus-s.toml")),
    ("emmc-gnote", include_str!("../../../../profiles/emmc-gnote.toml")),
    ("ssd-mtron", include_str!("../../../../profiles/ssd-mtron.toml")),
];

/// Mapping of logical addresses to flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mapping {
    /// Any unit anywhere: [`crate::ftl::PageMap`].
    Page,
    /// Any unit anywhere; whole maps of zones are loaded.
    Zone,
    /// Any unit anywhere; single map entries are cached.
    Dftl,
    /// Superblocks, and log blocks that belong to one superblock each.
    Bast,
    /// Superblocks, and log blocks shared by all.
    Fast,
    /// Superblocks that are replaced as a whole.
    Block,
}

impl Mapping {
    /// True if data blocks hold one superblock of the address space each.
    pub fn by_superblock(self) -> bool {
        matches!(self, Mapping::Bast | Mapping::Fast | Mapping::Block)
    }
}

/// Choice of victims for garbage collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Victims {
    /// Fewest valid units: [`crate::gc::Greedy`].
    Greedy,
    /// Few valid units and long untouched: [`crate::gc::CostBenefit`].
    CostBenefit,
    /// Closed first: [`crate::gc::Fifo`].
    Fifo,
}

/// The translation layer: the `[ftl]` table of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FtlParameters {
    /// Mapping scheme.
    pub mapping: Mapping,
    /// Victim policy.
    pub victims: Victims,
    /// Log superblocks of `bast` and `fast` (of `fast` besides the sequential one), or open
    /// replacements of `block`, 1 to 4096. `page` has none and ignores it.
    pub log_blocks: u32,
    /// Sequential runs kept going at once, 1 to 1024; 0: runs do not matter, all writes go to one
    /// frontier in the order in which they come.
    pub streams: u32,
    /// Reclaim unit handles, 1 to 5: each has open superblocks, runs and a collector of its own, so
    /// that data of one lifetime shares superblocks. A write goes to the handle with the number of
    /// its [`syncline_device::WriteLife`], to the first if there is none. Only schemes that can put
    /// a unit anywhere have more than one, and a device that is too small for so many open
    /// superblocks has fewer ([`Layout::handles`]). Optional.
    pub handles: u32,
    /// True if only what the host writes is kept apart by handle, and what is collected shares
    /// superblocks: "initially isolated" in the words of NVMe. Optional.
    pub initially_isolated: bool,
    /// A write this far behind the end of a run still continues it, KiB.
    pub stream_window_kib: u32,
    /// Cluster that a closed run must fill, KiB; a multiple of the map unit. Equal to the map unit:
    /// nothing is copied.
    pub merge_kib: u32,
    /// Map pages programmed when a run is closed, 0 to 64.
    pub close_map_programs: u32,
    /// Further work of the controller when a run is closed or a merge is done, microseconds.
    pub close_us: u32,
    /// Address space that one map page covers, KiB; a multiple of the map unit.
    pub map_segment_kib: u32,
    /// Map pages kept in RAM; 0: all. Of `zone` the zones kept in RAM, where 0 counts as 1.
    pub map_cache_segments: u32,
    /// Map entries kept in RAM by `dftl`, 1 to 2^24; others ignore it.
    pub map_cache_entries: u32,
    /// Static wear levelling: most erases of a superblock beyond the least worn, 0 (off) to 2^20.
    pub wear_gap: u32,
}

/// Behaviour of a write when the SLC write cache has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlcFull {
    /// It goes to the main blocks.
    Direct,
    /// It waits for a superblock of the cache to be folded.
    Fold,
}

/// A write cache of single-level blocks: the `[slc]` table of a profile, which only parts with one
/// have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlcParameters {
    /// Data that it always takes, MiB, 0 to 2^20.
    pub slc_mib: u32,
    /// Data that it takes further while nothing is mapped, MiB, 0 to 2^20; the more is mapped the
    /// less.
    pub slc_dynamic_mib: u32,
    /// Bits of a cell of the main blocks, 1 to 5: a superblock of the cache has so many times fewer
    /// pages.
    pub slc_bits: u32,
    /// Cell array to page register, microseconds.
    pub slc_read_us: u32,
    /// Page register to cell array, microseconds.
    pub slc_program_us: u32,
    /// Erase, microseconds.
    pub slc_erase_us: u32,
    /// Time without commands after which it is folded, milliseconds, 0 to 10^6.
    pub slc_idle_ms: u32,
    /// Behaviour of a write without room.
    pub slc_full: SlcFull,
    /// Erases that a block is rated for in this mode, 1 to 10^7.
    pub slc_rated_cycles: u32,
}

impl SlcParameters {
    fn validate(&self) -> Result<(), NandError> {
        check("slc_mib", self.slc_mib, 0, 1 << 20)?;
        check("slc_dynamic_mib", self.slc_dynamic_mib, 0, 1 << 20)?;
        check("slc_bits", self.slc_bits, 1, 5)?;
        check("slc_read_us", self.slc_read_us, 0, 100_000)?;
        check("slc_program_us", self.slc_program_us, 0, 1_000_000)?;
        check("slc_erase_us", self.slc_erase_us, 0, 10_000_000)?;
        check("slc_idle_ms", self.slc_idle_ms, 0, 1_000_000)?;
        check("slc_rated_cycles", self.slc_rated_cycles, 1, 10_000_000)
    }
}

/// Zones: the `[zones]` table of a profile, which only zoned parts have. A zone is a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ZoneParameters {
    /// Share of the device before its zones, percent, 1 to 100; 100: no zones.
    pub conventional_percent: u32,
    /// Zones that can be written at once without a cost, 1 to 1024.
    pub open_zones: u32,
}

impl ZoneParameters {
    fn validate(&self) -> Result<(), NandError> {
        check("conventional_percent", self.conventional_percent, 1, 100)?;
        check("open_zones", self.open_zones, 1, 1024)
    }
}

/// The write buffer: the `[buffer]` table of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BufferParameters {
    /// Size, KiB. 0: no volatile cache, a write is done when it is in the cells.
    pub buffer_kib: u32,
    /// True if a write may be made durable by itself (FUA, reliable write).
    pub fua: bool,
    /// True if capacitors carry the buffer to the cells when power fails: it is no volatile cache,
    /// and a flush waits for nothing.
    #[serde(default)]
    pub protected: bool,
    /// True if a cache barrier orders writes without a flush, as eMMC 5.1 has it. Only schemes
    /// that can put a unit anywhere, without an SLC write cache, have one.
    #[serde(default)]
    pub barrier: bool,
}

impl BufferParameters {
    /// True if a power cut loses data that a write command has taken.
    pub fn is_volatile(&self) -> bool {
        self.buffer_kib > 0 && !self.protected
    }
}

/// The path to the device: the `[host]` table of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostParameters {
    /// Commands in the device at once, 1 to 1024.
    pub queue_depth: u32,
    /// Time of the host's block layer, driver and interrupt for each command, microseconds. The
    /// device charges it before the command starts.
    pub request_us: u32,
    /// Time of the host's system call and application for each call, microseconds. The device does
    /// not charge it: whoever runs a workload in virtual time does.
    pub syscall_us: u32,
}

/// Energy of each kind of work: the `[energy]` table of a profile, which is optional. An estimate
/// for comparisons, see [`EnergyParameters::joules`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnergyParameters {
    /// An effective page read from the cells, microjoules.
    pub read_uj: u32,
    /// An effective page programmed, microjoules.
    pub program_uj: u32,
    /// A block of one die erased, all planes, microjoules.
    pub erase_uj: u32,
    /// Controller and bus while the device works or moves data, milliwatts.
    pub active_mw: u32,
    /// Publication of the energy figures.
    pub energy_source: String,
}

impl EnergyParameters {
    /// Joules of the counted work on a device of `dies`, and of `busy_s` seconds of the controller.
    /// Idle time is free: it is the same device in each of two runs that are compared.
    pub fn joules(&self, c: &Counters, dies: u32, busy_s: f64) -> f64 {
        let reads = (c.page_reads + c.map_reads) as f64 * f64::from(self.read_uj);
        // An SLC page costs less; the profiles with an SLC cache have no figures of it.
        let programs = c.programs() as f64 * f64::from(self.program_uj);
        let erases = (c.erases + c.map_erases + c.slc_erases) as f64 * f64::from(dies);
        let erases = erases * f64::from(self.erase_uj);
        (reads + programs + erases) / 1e6 + busy_s * f64::from(self.active_mw) / 1e3
    }

    fn validate(&self) -> Result<(), NandError> {
        check("read_uj", self.read_uj, 0, 1_000_000)?;
        check("program_uj", self.program_uj, 0, 1_000_000)?;
        check("erase_uj", self.erase_uj, 0, 10_000_000)?;
        check("active_mw", self.active_mw, 0, 100_000)
    }
}

/// Sources of the figures: the `[source]` table of a profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// One line: which device.
    pub summary: String,
    /// Publications and which figure each gives.
    pub published: Vec<String>,
    /// Fitted parameters: the figure that each was fitted to, and the deviation that is left.
    pub fitted: Vec<String>,
}

/// A device profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Name of a built-in profile or path of a file, with the overrides as given.
    pub name: String,
    /// Sources of the figures.
    pub source: Source,
    /// Shape of the flash.
    pub geometry: NandGeometry,
    /// Times.
    pub timing: Timing,
    /// Translation layer.
    pub ftl: FtlParameters,
    /// Write buffer.
    pub buffer: BufferParameters,
    /// SLC write cache, if the part has one.
    pub slc: Option<SlcParameters>,
    /// Zones, if the part has some.
    pub zones: Option<ZoneParameters>,
    /// Host side.
    pub host: HostParameters,
    /// Energy of work, where somebody published it.
    pub energy: Option<EnergyParameters>,
    /// Published figures of the device, to be compared with those of the profile.
    pub checks: Vec<Check>,
    /// Parameters that published figures leave open, with the ends of their ranges.
    pub open: Vec<Open>,
    /// Parameters that differ in other hosts, by the name of the host.
    pub hosts: toml::Table,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    source: Source,
    geometry: NandGeometry,
    timing: Timing,
    ftl: FtlParameters,
    buffer: BufferParameters,
    #[serde(default)]
    slc: Option<SlcParameters>,
    #[serde(default)]
    zones: Option<ZoneParameters>,
    host: HostParameters,
    #[serde(default)]
    energy: Option<EnergyParameters>,
    #[serde(default)]
    check: Vec<Check>,
    #[serde(default)]
    hosts: toml::Table,
}

/// Names and texts of the built-in profiles.
pub fn profiles() -> impl Iterator<Item = (&'static str, &'static str)> {
    BUILT_IN.iter().copied()
}

impl Profile {
    /// A built-in profile.
    pub fn by_name(name: &str) -> Result<Profile, NandError> {
        Profile::from_toml(name, spec::built_in(name)?)
    }

    /// Reads a profile from its text; `name` is for messages and reports.
    pub fn from_toml(name: &str, text: &str) -> Result<Profile, NandError> {
        Profile::from_table(name, spec::parse(name, text)?)
    }

    /// Reads a specification: a built-in name, or a path (it has a `/` or ends in `.toml`), and
    /// `:key=value,...`. `read_file` gets the path; this crate touches no file by itself.
    pub fn parse_spec(
        spec: &str,
        read_file: &dyn Fn(&Path) -> std::io::Result<String>,
    ) -> Result<Profile, NandError> {
        let (name, overrides) = match spec.rsplit_once(':') {
            Some((name, rest)) if !rest.contains('/') => (name, rest),
            _ => (spec, ""),
        };
        let mut table = if name.contains('/') || name.ends_with(".toml") {
            let text = read_file(Path::new(name))
                .map_err(|e| NandError::File { path: name.to_owned(), reason: e.to_string() })?;
            spec::parse(name, &text)?
        } else {
            spec::parse(name, spec::built_in(name)?)?
        };
        spec::set_all(&mut table, overrides)?;
        Profile::from_table(spec, table)
    }

    /// [`Profile::parse_spec`] for built-in names only.
    pub fn parse_built_in(spec: &str) -> Result<Profile, NandError> {
        Profile::parse_spec(spec, &|_| {
            Err(std::io::Error::new(std::io::ErrorKind::Unsupported, "only names are taken here"))
        })
    }

    /// The profile with overrides, `key=value,...`, which its name then has too.
    pub fn with(&self, overrides: &str) -> Result<Profile, NandError> {
        let mut table = spec::parse(&self.name, &self.to_toml()?)?;
        spec::set_all(&mut table, overrides)?;
        let joint = if self.name.contains(':') { ',' } else { ':' };
        Profile::from_table(&format!("{}{joint}{overrides}", self.name), table)
    }

    /// The profiles at the ends of each open parameter around the profile itself, in the order of
    /// the parameter: low, value, high. Only the profile itself if nothing is open.
    pub fn range(&self) -> Result<Vec<Profile>, NandError> {
        let (mut low, mut high) = (Vec::new(), Vec::new());
        for open in &self.open {
            if open.low < open.value {
                low.push(self.with(&format!("{}={}", open.key, open.low))?);
            }
            if open.value < open.high {
                high.push(self.with(&format!("{}={}", open.key, open.high))?);
            }
        }
        Ok(low.into_iter().chain([self.clone()]).chain(high).collect())
    }

    /// A published figure as the profile gives it, in the host in which it was measured.
    pub fn measure(&self, check: &Check) -> Result<f64, NandError> {
        match &check.host {
            Some(host) => check.figure.measure(&self.with(&format!("host={host}"))?),
            None => check.figure.measure(self),
        }
    }

    fn from_table(name: &str, mut table: toml::Table) -> Result<Profile, NandError> {
        let open = spec::take_open(&mut table)?;
        let file: File = table.try_into().map_err(|e: toml::de::Error| NandError::Parse {
            name: name.to_owned(),
            reason: e.message().to_owned(),
        })?;
        let File { source, geometry, timing, ftl, buffer, slc, zones, host, energy, check, hosts } =
            file;
        let profile = Profile {
            name: name.to_owned(),
            source,
            geometry,
            timing,
            ftl,
            buffer,
            slc,
            zones,
            host,
            energy,
            checks: check,
            open,
            hosts,
        };
        profile.validate()?;
        Ok(profile)
    }

    /// The profile as the text of a file, which [`Profile::from_toml`] reads.
    pub fn to_toml(&self) -> Result<String, NandError> {
        self.validate()?;
        let file = File {
            source: self.source.clone(),
            geometry: self.geometry,
            timing: self.timing,
            ftl: self.ftl,
            buffer: self.buffer,
            slc: self.slc,
            zones: self.zones,
            host: self.host,
            energy: self.energy.clone(),
            check: self.checks.clone(),
            hosts: self.hosts.clone(),
        };
        let bad = |e: toml::ser::Error| NandError::Parse {
            name: self.name.clone(),
            reason: e.to_string(),
        };
        let mut table = toml::Table::try_from(&file).map_err(bad)?;
        spec::put_open(&mut table, &self.open);
        toml::to_string(&table).map_err(bad)
    }

    /// Refuses figures that no device has. Call it after changing fields in code.
    pub fn validate(&self) -> Result<(), NandError> {
        self.geometry.validate()?;
        self.timing.validate()?;
        if let Some(energy) = &self.energy {
            energy.validate()?;
        }
        check("log_blocks", self.ftl.log_blocks, 1, 4096)?;
        check("streams", self.ftl.streams, 0, 1024)?;
        let handles_max = if self.ftl.mapping.by_superblock() { 1 } else { 5 };
        check("handles", self.ftl.handles, 1, handles_max)?;
        check("stream_window_kib", self.ftl.stream_window_kib, 0, 1 << 20)?;
        check("close_map_programs", self.ftl.close_map_programs, 0, 64)?;
        check("close_us", self.ftl.close_us, 0, 10_000_000)?;
        check("merge_kib", self.ftl.merge_kib, 1, 1 << 16)?;
        check("map_segment_kib", self.ftl.map_segment_kib, 1, 1 << 24)?;
        check("map_cache_segments", self.ftl.map_cache_segments, 0, 1 << 24)?;
        check("map_cache_entries", self.ftl.map_cache_entries, 1, 1 << 24)?;
        check("wear_gap", self.ftl.wear_gap, 0, 1 << 20)?;
        check("buffer_kib", self.buffer.buffer_kib, 0, 1 << 20)?;
        self.slc.as_ref().map_or(Ok(()), SlcParameters::validate)?;
        self.zones.as_ref().map_or(Ok(()), ZoneParameters::validate)?;
        let is_layered = self.slc.is_some() || self.zones.is_some();
        if self.buffer.barrier && (self.ftl.mapping.by_superblock() || is_layered) {
            let reason =
                "only page, zone and dftl mapping without [slc] and [zones] have one".to_owned();
            return Err(NandError::BadValue { key: "barrier", reason });
        }
        check("queue_depth", self.host.queue_depth, 1, 1024)?;
        check("request_us", self.host.request_us, 0, 1_000_000)?;
        check("syscall_us", self.host.syscall_us, 0, 1_000_000)?;
        let unit = self.geometry.map_unit_kib;
        let page_kib = self.geometry.page_bytes() / 1024;
        if self.ftl.mapping.by_superblock() && u64::from(unit) != page_kib {
            let reason = format!(
                "{unit} is not the effective page of {page_kib} KiB, the unit of bast, fast and \
                 block mapping"
            );
            return Err(NandError::BadValue { key: "map_unit_kib", reason });
        }
        for (key, value) in
            [("merge_kib", self.ftl.merge_kib), ("map_segment_kib", self.ftl.map_segment_kib)]
        {
            if !value.is_multiple_of(unit) {
                let reason = format!("{value} is no multiple of map_unit_kib={unit}");
                return Err(NandError::BadValue { key, reason });
            }
        }
        Ok(())
    }

    /// The layout of a volume of `size_bytes` on this device.
    pub fn layout(&self, size_bytes: u64) -> Result<Layout, NandError> {
        let frontiers = match self.ftl.mapping.by_superblock() {
            // The log blocks and the sequential one of `fast`.
            true => self.ftl.log_blocks + 1,
            false => self.ftl.streams.max(1) + 1 + u32::from(self.ftl.wear_gap > 0),
        };
        let zones = self.zones_of(size_bytes);
        let conventional_bytes = size_bytes - zones * self.geometry.block_bytes();
        let mut layout = Layout::new(&self.geometry, conventional_bytes, frontiers)?;
        // Further handles get no further flash. Their open superblocks come out of the spare area.
        let spare = layout.blocks - layout.host_units.div_ceil(layout.units_per_block);
        let further = self.ftl.streams.max(1) + 1;
        let room = (spare - 1).saturating_sub(frontiers + FREE_BLOCKS_MIN) / further;
        layout.handles = self.ftl.handles.min(1 + room);
        layout.with_zones(zones, size_bytes)
    }

    /// Zones of a device of `size_bytes`.
    fn zones_of(&self, size_bytes: u64) -> u64 {
        let percent = self.zones.as_ref().map_or(0, |zones| 100 - zones.conventional_percent);
        let bytes = u128::from(size_bytes) * u128::from(percent) / 100;
        bytes as u64 / self.geometry.block_bytes()
    }
}
