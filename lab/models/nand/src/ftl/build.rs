//! From a profile to its mapping scheme: the one place that knows all of them.

use super::bast::Bast;
use super::block_map::BlockMap;
use super::dftl::Dftl;
use super::fast::Fast;
use super::hybrid::{BlockScheme, Core, Hybrid};
use super::slc::SlcCache;
use super::zone_map::ZoneMap;
use super::zoned::Zoned;
use super::{CloseCost, Ftl, MapCache, MapTable, PageMap};
use crate::buffer::FifoBuffer;
use crate::gc::{CostBenefit, Fifo, Greedy, VictimPolicy};
use crate::geometry::Layout;
use crate::profile::{Mapping, Profile, Victims};
use crate::streams::StreamTable;

/// The mapping scheme of a profile over erased flash. The profile was validated.
pub(crate) fn build(profile: &Profile, layout: Layout) -> Box<dyn Ftl> {
    let conventional = conventional(profile, layout.conventional());
    match &profile.zones {
        Some(zones) if layout.zones > 0 => {
            let buffered = profile.buffer.buffer_kib / profile.geometry.map_unit_kib;
            let bits = profile.slc.as_ref().map_or(1, |slc| slc.slc_bits);
            Box::new(Zoned::new(layout, zones.open_zones, buffered, bits, conventional))
        }
        _ => conventional,
    }
}

fn conventional(profile: &Profile, layout: Layout) -> Box<dyn Ftl> {
    let logs = profile.ftl.log_blocks;
    let main: Box<dyn Ftl> = match profile.ftl.mapping {
        Mapping::Page | Mapping::Zone | Mapping::Dftl => Box::new(page_map(profile, layout)),
        Mapping::Bast => hybrid(profile, layout, |core| Bast::new(core, logs)),
        Mapping::Fast => hybrid(profile, layout, |core| Fast::new(core, logs)),
        Mapping::Block => hybrid(profile, layout, |core| BlockMap::new(core, logs)),
    };
    let buffered = profile.buffer.buffer_kib / profile.geometry.map_unit_kib;
    match &profile.slc {
        Some(slc) => Box::new(SlcCache::new(slc, layout, buffered, main)),
        None => main,
    }
}

fn hybrid<S: BlockScheme + 'static>(
    profile: &Profile,
    layout: Layout,
    scheme: impl FnOnce(&Core) -> S,
) -> Box<dyn Ftl> {
    let buffered = profile.buffer.buffer_kib / profile.geometry.map_unit_kib;
    // Half of the buffer may hold partly written units, one for each place that is written.
    let registers = (buffered / 2).clamp(1, profile.ftl.log_blocks);
    // Without a volatile cache there is still the page register of each die.
    let cache = Box::new(FifoBuffer::new(buffered.max(registers + layout.dies)));
    let merge_ns = u64::from(profile.ftl.close_us) * 1000;
    Box::new(Hybrid::new(layout, cache, registers, (merge_ns, profile.ftl.wear_gap), scheme))
}

fn page_map(profile: &Profile, layout: Layout) -> PageMap {
    let (f, unit_kib) = (&profile.ftl, profile.geometry.map_unit_kib);
    let victims: Box<dyn VictimPolicy> = match f.victims {
        Victims::Greedy => Box::new(Greedy::new(layout.blocks, layout.units_per_block)),
        Victims::CostBenefit => Box::new(CostBenefit::new(layout.blocks, layout.units_per_block)),
        Victims::Fifo => Box::new(Fifo::new(layout.blocks)),
    };
    let streams = StreamTable::new(f.streams, u64::from(f.stream_window_kib) * 2);
    let streams = vec![streams; layout.handles as usize];
    let segment_units = f.map_segment_kib / unit_kib;
    let (units, cached) = (layout.host_units, f.map_cache_segments);
    let map: Box<dyn MapTable> = match f.mapping {
        Mapping::Zone => Box::new(ZoneMap::new(units, segment_units, cached, layout.page_bytes())),
        Mapping::Dftl => Box::new(Dftl::new(units, segment_units, f.map_cache_entries)),
        _ => Box::new(MapCache::new(units, segment_units, cached)),
    };
    // Without a volatile cache there is still the page register of each frontier.
    let registers = layout.handles * (f.streams.max(1) + 1) * layout.units_per_page;
    let capacity = (profile.buffer.buffer_kib / unit_kib).max(registers);
    let cache = Box::new(FifoBuffer::new(capacity));
    let close = CloseCost {
        cluster_units: f.merge_kib / unit_kib,
        map_programs: f.close_map_programs,
        close_ns: u64::from(f.close_us) * 1000,
    };
    PageMap::new(layout, streams, map, victims, cache, close, f.wear_gap)
        .with_isolation(f.initially_isolated)
}
