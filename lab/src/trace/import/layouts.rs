//! Published traces that are a request a line in columns.
//!
//! | name | of | line |
//! |---|---|---|
//! | `msr` | MSR Cambridge (FAST'08) | time, host, disk, Read, offset, bytes, response |
//! | `spc` | UMass Storage, SPC-1 | unit, sector, bytes, R, seconds |
//! | `systor` | SNIA IOTTA, SYSTOR'17 | seconds, response, R, LUN, offset, bytes |
//! | `diskmon` | Sysinternals DiskMon | number, time, seconds, disk, Read, sector, sectors |
//! | `pixel6a` | Pixel 6a, SYSTOR'24 | name-pid, device, R, sector, sectors, seconds |
//! | `nexus5` | Nexus 5 sets without times | sector, bytes, 1 = write |
//! | `cloudphysics` | CloudPhysics as CSV | version, seconds, SCSI code, bytes, sector |
//! | `mqsim` | MQSim, SSDsim ASCII | ns, device, sector, sectors, 0 = write |
//! | `alibaba` | Alibaba block traces (IISWC'20) | disk, R, offset, bytes, microseconds |
//! | `tencent` | Tencent CBS (ATC'20), SNIA IOTTA | seconds, sector, sectors, 1 = write, volume |
//! | `libcachesim-csv` | libCacheSim, as exported | seconds, page, bytes, read or write |
//! | `wiscsee` | extract of blkparse | pid, action, op, offset, bytes, seconds, wait, sync |
//!
//! A line of the table in `table.rs` and a function here make a format.

use super::columns::{Column, Layout, op_read_is_one, op_scsi, op_write_is_one};

const S: u64 = 1_000_000_000;

pub(super) fn msr() -> Layout {
    use Column::{Device, FileTime, Latency, Len, Offset, Op, Skip};
    let columns = vec![FileTime, Skip, Device, Op, Offset(1), Len(1), Latency(100)];
    Layout { optional: 1, ..Layout::new(Some(','), columns) }
}

pub(super) fn spc() -> Layout {
    use Column::{Device, Len, Offset, Op, Time};
    let columns = vec![Device, Offset(512), Len(1), Op, Time(S)];
    Layout { more: true, ..Layout::new(Some(','), columns) }
}

pub(super) fn systor() -> Layout {
    use Column::{Device, Latency, Len, Offset, Op, Time};
    let columns = vec![Time(S), Latency(S), Op, Device, Offset(1), Len(1)];
    let header = Some("Timestamp,Response,IOType,LUN,Offset,Size");
    Layout { header, ..Layout::new(Some(','), columns) }
}

pub(super) fn diskmon() -> Layout {
    use Column::{Device, Latency, Len, Offset, Op, Skip, Time};
    let columns = vec![Skip, Time(S), Latency(S), Device, Op, Offset(512), Len(512)];
    Layout { more: true, ..Layout::new(Some('\t'), columns) }
}

pub(super) fn pixel6a() -> Layout {
    use Column::{Device, Len, NameAndPid, Offset, Op, Time};
    let columns = vec![NameAndPid, Device, Op, Offset(512), Len(512), Time(S)];
    Layout { header: Some("proces,device,rw_flag"), ..Layout::new(Some(','), columns) }
}

pub(super) fn nexus5() -> Layout {
    use Column::{Len, Offset, Op};
    let columns = vec![Offset(512), Len(1), Op];
    let op = op_write_is_one;
    Layout {
        header: Some("offset,size,type"),
        op,
        // The driver adds a sector to some lengths.
        round_len: true,
        ..Layout::new(Some(','), columns)
    }
}

pub(super) fn cloudphysics() -> Layout {
    use Column::{Len, Offset, Op, Skip, Time};
    let columns = vec![Skip, Time(S), Op, Len(1), Offset(512)];
    let header = Some("version,time,op,size,lbn");
    Layout { header, op: op_scsi, ..Layout::new(Some(','), columns) }
}

pub(super) fn alibaba() -> Layout {
    use Column::{Device, Len, Offset, Op, Time};
    let columns = vec![Device, Op, Offset(1), Len(1), Time(1000)];
    Layout::new(Some(','), columns)
}

pub(super) fn tencent() -> Layout {
    use Column::{Device, Len, Offset, Op, Time};
    let columns = vec![Time(S), Offset(512), Len(512), Op, Device];
    Layout { op: op_write_is_one, ..Layout::new(Some(','), columns) }
}

pub(super) fn libcachesim_csv() -> Layout {
    use Column::{Len, Object, Op, Time};
    let columns = vec![Time(S), Object, Len(1), Op];
    let header = Some("time,obj_id,obj_size");
    Layout { header, optional: 1, ..Layout::new(Some(','), columns) }
}

pub(super) fn mqsim() -> Layout {
    use Column::{Device, Len, Offset, Op, Time};
    let columns = vec![Time(1), Device, Offset(512), Len(512), Op];
    Layout { op: op_read_is_one, ..Layout::new(None, columns) }
}

pub(super) fn wiscsee() -> Layout {
    use Column::{Len, Offset, Only, Op, Process, Skip, Sync, Time};
    let columns = vec![Process, Only("D"), Op, Offset(1), Len(1), Time(S), Skip, Sync];
    Layout::new(None, columns)
}

/// Columns that `trace export --to blkparse-csv` writes.
pub(super) fn blkparse_csv() -> Layout {
    use Column::{Device, Len, Offset, Op, Process, ProcessName, Skip, Sync, Time};
    let columns =
        vec![Time(S), Device, Process, ProcessName, Op, Skip, Offset(512), Len(512), Sync];
    Layout { header: Some("time_s,device,process,"), ..Layout::new(Some(','), columns) }
}
