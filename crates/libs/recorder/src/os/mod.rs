//! The recorder on this system: threads, clocks, files, priorities.
//!
//! ```text
//!   runner     writer thread (SCHED_FIFO where permitted), lower thread, reports
//!   directory  names, creation and listing of event files
//!   paper      fallocate, write, sync_file_range, ftruncate + fsync
//!   pool       files that are allocated and zeroed before they are needed
//!   uring      O_DIRECT, io_uring, registered buffers
//!   sys        the calls that need unsafe code
//! ```

mod directory;
mod paper;
mod pool;
mod runner;
mod sys;
mod uring;

pub use directory::{FileSource, event_files};
pub use paper::PaperStrategy;
pub use pool::PoolStrategy;
pub use runner::{Options, Permitted, Recorder};
pub use sys::{lock_memory, real_time, sync_file_range};
pub use uring::UringStrategy;
