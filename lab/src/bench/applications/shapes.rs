//! The nine applications of the informed-storage paper, section 3.2.2, as shapes of work.
//!
//! Published: sites, application sizes, steps, and the bytes that reach the storage (Tables 3 and
//! 4, the text). Not published, and ours: processor time, bytes over the network, records of
//! databases. A phone of 2010 renders a page in a second or two, and downloads about what it
//! keeps.

/// An amount of work between two looks at the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// Times that it is done.
    pub times: u64,
    /// Bytes from and to the network.
    pub received_bytes: u64,
    pub sent_bytes: u64,
    /// Processor time, ms.
    pub cpu_ms: u64,
    /// Transactions of the application's databases.
    pub transactions: u64,
    /// Bytes of new rows in each.
    pub row_bytes: u64,
    /// New files that nobody syncs, and bytes of all of them.
    pub files: u64,
    pub file_bytes: u64,
    /// Bytes of one file that is copied: written to a temporary place, read, written again, synced.
    pub installed_bytes: u64,
    /// Bytes read from files that were there before.
    pub read_bytes: u64,
}

const NOTHING: Step = Step {
    times: 1,
    received_bytes: 0,
    sent_bytes: 0,
    cpu_ms: 0,
    transactions: 0,
    row_bytes: 0,
    files: 0,
    file_bytes: 0,
    installed_bytes: 0,
    read_bytes: 0,
};

/// One application.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Name in reports.
    pub name: &'static str,
    /// Description of one run.
    pub summary: &'static str,
    /// Databases; transactions go to them in turn.
    pub databases: u64,
    /// Its steps, in order.
    pub steps: &'static [Step],
}

const fn kib(n: u64) -> u64 {
    n << 10
}

/// Sizes of Table 3, left: what is installed, in hundredths of a MB.
const INSTALLED: [u64; 10] = [195, 665, 296, 122, 216, 1865, 70, 1744, 375, 10];
/// Table 3, right: what is launched.
const LAUNCHED: [u64; 10] = [1865, 2354, 260, 138, 105, 58, 214, 188, 136, 80];

const INSTALLS: [Step; 10] = {
    let mut steps = [NOTHING; 10];
    let mut n = 0;
    while n < 10 {
        let bytes = INSTALLED[n] * 10_000;
        steps[n] = Step {
            // Over the cable of `adb install`, then verified and optimised: 0.2 s a MB.
            received_bytes: bytes,
            cpu_ms: 400 + INSTALLED[n] * 2,
            installed_bytes: bytes,
            files: 4,
            file_bytes: bytes / 8,
            transactions: 12,
            row_bytes: 400,
            ..NOTHING
        };
        n += 1;
    }
    steps
};

const LAUNCHES: [Step; 10] = {
    let mut steps = [NOTHING; 10];
    let mut n = 0;
    while n < 10 {
        // Code and pictures that are read at the start; some applications ask a server.
        let asks = matches!(n, 2 | 6 | 7 | 8 | 9);
        steps[n] = Step {
            cpu_ms: 700 + LAUNCHED[n],
            read_bytes: LAUNCHED[n] * 10_000,
            received_bytes: if asks { kib(60) } else { 0 },
            sent_bytes: if asks { kib(4) } else { 0 },
            transactions: if asks { 4 } else { 1 },
            row_bytes: 200,
            ..NOTHING
        };
        n += 1;
    }
    steps
};

/// The applications, in the paper's order. RL Bench is the workload `fjord/rlbench`.
pub(super) const SHAPES: &[Shape] = &[
    Shape {
        name: "webbench",
        summary: "50 web sites, one after the other",
        databases: 3,
        steps: &[Step {
            times: 50,
            received_bytes: 830_000,
            sent_bytes: kib(20),
            cpu_ms: 900,
            transactions: 22,
            row_bytes: 250,
            files: 24,
            file_bytes: 800_000,
            read_bytes: 146_000,
            ..NOTHING
        }],
    },
    Shape {
        name: "appinstall",
        summary: "ten applications of 55.58 MB are installed",
        databases: 1,
        steps: &INSTALLS,
    },
    Shape {
        name: "applaunch",
        summary: "ten applications of 53.98 MB are started",
        databases: 4,
        steps: &LAUNCHES,
    },
    Shape {
        name: "facebook",
        summary: "sign in, the feed, five drags, sign out",
        databases: 2,
        steps: &[
            Step {
                received_bytes: kib(40),
                sent_bytes: kib(8),
                cpu_ms: 900,
                transactions: 8,
                row_bytes: 300,
                ..NOTHING
            },
            Step {
                times: 6,
                received_bytes: kib(330),
                sent_bytes: kib(10),
                cpu_ms: 1100,
                transactions: 10,
                row_bytes: 500,
                files: 8,
                file_bytes: kib(310),
                ..NOTHING
            },
            Step { sent_bytes: kib(4), cpu_ms: 300, transactions: 6, row_bytes: 60, ..NOTHING },
        ],
    },
    Shape {
        name: "maps",
        summary: "two addresses, directions, nine zooms, satellite view",
        databases: 1,
        steps: &[
            Step {
                received_bytes: kib(30),
                sent_bytes: kib(6),
                cpu_ms: 900,
                transactions: 3,
                row_bytes: 200,
                ..NOTHING
            },
            Step {
                times: 9,
                received_bytes: kib(60),
                sent_bytes: kib(2),
                cpu_ms: 600,
                files: 1,
                file_bytes: kib(20),
                ..NOTHING
            },
            Step {
                received_bytes: kib(150),
                sent_bytes: kib(2),
                cpu_ms: 700,
                transactions: 4,
                row_bytes: 200,
                files: 1,
                file_bytes: kib(30),
                ..NOTHING
            },
        ],
    },
    Shape {
        name: "email",
        summary: "an account is added, the list of messages fetched",
        databases: 2,
        steps: &[
            Step {
                received_bytes: kib(4),
                sent_bytes: kib(2),
                cpu_ms: 800,
                transactions: 6,
                row_bytes: 150,
                read_bytes: kib(1100),
                ..NOTHING
            },
            Step {
                times: 25,
                received_bytes: kib(36),
                sent_bytes: kib(1),
                cpu_ms: 90,
                transactions: 2,
                row_bytes: 900,
                files: 1,
                file_bytes: kib(36),
                ..NOTHING
            },
        ],
    },
    Shape { name: "rlbench", summary: "thirteen phases of SQLite", databases: 0, steps: &[] },
    Shape {
        name: "pulse",
        summary: "articles of several sites are fetched and kept",
        databases: 1,
        steps: &[Step {
            times: 12,
            received_bytes: kib(240),
            sent_bytes: kib(4),
            cpu_ms: 450,
            transactions: 2,
            row_bytes: 1500,
            files: 4,
            file_bytes: kib(210),
            ..NOTHING
        }],
    },
    Shape {
        name: "background",
        summary: "six applications and eight widgets fetch what is new",
        databases: 14,
        steps: &[Step {
            times: 14,
            received_bytes: kib(80),
            sent_bytes: kib(6),
            cpu_ms: 350,
            transactions: 5,
            row_bytes: 400,
            files: 2,
            file_bytes: kib(60),
            ..NOTHING
        }],
    },
];
