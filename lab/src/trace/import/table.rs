//! The one list of formats. The first that fits is taken: those with a mark come before those that
//! are only numbers.

use super::{Format, Reader, Sample};
use super::{
    blkparse, blktrace, columns, ext4, fio, ftrace, layouts, lirs, mobigen, oracle, strace,
    tracefs, vscsi,
};
use crate::trace::model::TraceKind::{Block, Page, Syscall};

fn never(_: &Sample<'_>) -> bool {
    false
}

macro_rules! layout {
    ($name:literal, $about:literal, $layout:path) => {
        Format {
            name: $name,
            about: $about,
            kind: Block,
            detect: never,
            reader: Reader::Columns($layout),
        }
    };
}

macro_rules! lines {
    ($kind:ident, $name:literal, $about:literal, $module:ident) => {
        Format {
            name: $name,
            about: $about,
            kind: $kind,
            detect: $module::detect,
            reader: Reader::Lines($module::parser),
        }
    };
}

/// `--columns`.
pub(super) static GENERIC: Format = Format {
    name: "columns",
    about: "lines of columns, described by --columns",
    kind: Block,
    detect: never,
    reader: Reader::Lines(columns::generic),
};

/// Every format, in the order in which they are tried.
pub static FORMATS: [Format; 24] = [
    Format {
        name: "blktrace",
        about: "blktrace's binary stream of one processor, or merged by blkparse -d",
        kind: Block,
        detect: blktrace::detect,
        reader: Reader::Binary(blktrace::read),
    },
    Format {
        name: "vscsi",
        about: "VMware's binary trace of SCSI commands, as CloudPhysics'",
        kind: Block,
        detect: vscsi::detect,
        reader: Reader::Binary(vscsi::read),
    },
    lines!(Syscall, "fio", "fio's iolog, version 2 or 3", fio),
    lines!(Syscall, "android-ext4", "ftrace logs of a phone's file operations", ftrace),
    lines!(Syscall, "ext4", "events of the kernel's ext4, as `advise DIR` records them", ext4),
    lines!(Block, "tracefs", "block events of the kernel's trace", tracefs),
    lines!(Syscall, "strace", "strace -f -ttt -y, best with -T", strace),
    lines!(Syscall, "mobigen", "scripts of MobiGen", mobigen),
    lines!(Block, "blkparse", "blkparse's text", blkparse),
    layout!("pixel6a", "block requests of a Pixel 6a, CSV", layouts::pixel6a),
    layout!("nexus5", "block requests of a Nexus 5 without times, CSV", layouts::nexus5),
    layout!("cloudphysics", "CloudPhysics as CSV, SCSI codes", layouts::cloudphysics),
    layout!("systor", "SNIA IOTTA, SYSTOR'17, CSV", layouts::systor),
    layout!("blkparse-csv", "what `trace export --to blkparse-csv` writes", layouts::blkparse_csv),
    Format {
        name: "libcachesim-csv",
        about: "libCacheSim's CSV with the header time,obj_id,obj_size[,op]: page accesses",
        kind: Page,
        detect: never,
        reader: Reader::Columns(layouts::libcachesim_csv),
    },
    Format {
        name: "oracle-general",
        about: "libCacheSim's binary trace; it has no mark, so it has to be named",
        kind: Page,
        detect: never,
        reader: Reader::Binary(oracle::read),
    },
    layout!("msr", "MSR Cambridge, SNIA IOTTA, CSV", layouts::msr),
    layout!("spc", "UMass and SPC, CSV", layouts::spc),
    layout!("alibaba", "Alibaba Cloud's block traces, CSV", layouts::alibaba),
    layout!("tencent", "Tencent CBS, SNIA IOTTA, CSV", layouts::tencent),
    layout!("diskmon", "DiskMon's log", layouts::diskmon),
    layout!("wiscsee", "extract of blkparse in eight columns", layouts::wiscsee),
    layout!("mqsim", "MQSim and SSDsim, five numbers a line", layouts::mqsim),
    lines!(Page, "lirs", "a page number a line", lirs),
];
