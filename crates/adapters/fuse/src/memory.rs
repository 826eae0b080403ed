//! Memory of a serving process: it comes in large steps, and goes back after idleness.
//!
//! The C library gives each thread a heap of its own, which grows by a page and an mprotect(2) at a
//! time, and keeps what it has once. One heap for all threads grows by [`STEP_BYTES`], and
//! malloc_trim(3) returns every free page of it. Another C library than glibc decides for itself.
#![allow(unsafe_code)]

/// Growth of the heap.
#[cfg(target_env = "gnu")]
const STEP_BYTES: libc::c_int = 4 << 20;
/// Blocks from this size on are mappings of their own, whose pages come when they are used.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES: libc::c_int = 512 << 10;
/// Free bytes at the end of the heap from which on they go back at once.
#[cfg(target_env = "gnu")]
const KEPT_BYTES: libc::c_int = 64 << 20;

/// Prepares this process to serve a mount, before it has threads.
pub fn prepare_memory() {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in [
        (libc::M_ARENA_MAX, 1),
        (libc::M_TOP_PAD, STEP_BYTES),
        (libc::M_MMAP_THRESHOLD, MAPPED_BYTES),
        (libc::M_TRIM_THRESHOLD, KEPT_BYTES),
    ] {
        // SAFETY: a call without pointers. A value that is refused leaves the default.
        unsafe { libc::mallopt(parameter, value) };
    }
}

/// Bytes of the heap in use, and free ones that the system did not get back; `None` where the C
/// library does not say. Each of the sums of mallinfo(3) wraps at 4 GiB; mallinfo2 needs a newer
/// glibc than the packages do.
pub(crate) fn heap_bytes() -> Option<(u64, u64)> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: a call without pointers, which any thread may make at any time.
        let info = unsafe { libc::mallinfo() };
        let bytes = |sum: libc::c_int| u64::from(sum as u32);
        Some((bytes(info.uordblks) + bytes(info.hblkhd), bytes(info.fordblks)))
    }
    #[cfg(not(target_env = "gnu"))]
    None
}

/// Gives free memory back to the system.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: a call without pointers, which any thread may make at any time.
    unsafe {
        libc::malloc_trim(0)
    };
}
