//! libc's own functions, and the kernel's information on a descriptor.
//!
//! Programs' calls of libc end in our hooks, this library's own calls too: what has to reach the
//! kernel goes through a [`Real`].

use std::cell::UnsafeCell;
use std::ffi::{CStr, OsString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::files::FileId;

/// Suffix of a path in /proc when the file has no name any more.
const DELETED: &[u8] = b" (deleted)";
/// Longest path that the kernel knows.
const PATH_BYTES_MAX: usize = 4096;
/// Attempts to take a lock, with a yield between.
const TRIES: u32 = 1000;

/// The next definition of a function behind ours, found when it is first needed.
pub(crate) struct Real<F> {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
    signature: PhantomData<F>,
}

impl<F: Copy> Real<F> {
    /// `F` is the type of a pointer to the C function `name`.
    ///
    /// # Safety
    /// libc's `name` has the signature `F`, a function pointer.
    pub(crate) const unsafe fn new(name: &'static CStr) -> Real<F> {
        Real { name, address: AtomicPtr::new(std::ptr::null_mut()), signature: PhantomData }
    }

    /// The function; `None` where this libc has none.
    pub(crate) fn get(&self) -> Option<F> {
        let mut address = self.address.load(Ordering::Acquire);
        if address.is_null() {
            // SAFETY: the name is a C string; RTLD_NEXT asks for the one behind this library.
            address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
            self.address.store(address, Ordering::Release);
        }
        // SAFETY: not null, so it is the function, whose signature is F by the promise of `new`; a
        // function pointer has the size of an address.
        (!address.is_null())
            .then(|| unsafe { std::mem::transmute_copy::<*mut c_void, F>(&address) })
    }
}

pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: the address of errno is valid in every thread.
    unsafe { *libc::__errno_location() = errno };
}

/// A path of the caller; an empty one for null, which libc then refuses.
///
/// # Safety
/// `path` is a C string or null.
pub(crate) unsafe fn text<'a>(path: *const c_char) -> &'a CStr {
    // SAFETY: by the caller's promise, where it is not null.
    if path.is_null() { c"" } else { unsafe { CStr::from_ptr(path) } }
}

/// A value behind a lock with a bounded wait: after a fork its holder may not exist.
pub(crate) struct Spin<T> {
    taken: AtomicBool,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: only who has set `taken` reaches the value, one thread at a time, and T may be sent.
unsafe impl<T: Send> Sync for Spin<T> {}

impl<T: Default> Spin<T> {
    pub(crate) const fn new() -> Spin<T> {
        Spin { taken: AtomicBool::new(false), value: UnsafeCell::new(None) }
    }

    /// Calls `f` with the value, or gives up: `None`.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut tries = 0;
        while self.taken.swap(true, Ordering::Acquire) {
            tries += 1;
            if tries == TRIES {
                return None;
            }
            std::thread::yield_now();
        }
        // SAFETY: `taken` was false and is ours until the store below; `f` does not come back here,
        // because a second `with` would give up above.
        let value = unsafe { &mut *self.value.get() };
        let result = f(value.get_or_insert_default());
        self.taken.store(false, Ordering::Release);
        Some(result)
    }

    /// In a child after fork: an empty value and a free lock, whatever was going on in the parent.
    /// The old value leaks, because it may be half changed.
    ///
    /// # Safety
    /// The caller is the only thread.
    pub(crate) unsafe fn start_again(&self) {
        // SAFETY: nobody else is there; `write` does not look at the old value.
        unsafe { self.value.get().write(None) };
        self.taken.store(false, Ordering::Release);
    }
}

/// Identity of an open file, as the kernel reports it.
pub(crate) struct Identity {
    pub(crate) id: FileId,
    /// Regular with one name, a directory, or a block device: a rule can decide on it.
    pub(crate) plain: bool,
    pub(crate) directory: bool,
    /// It has a name.
    pub(crate) named: bool,
}

/// `None` for what is no descriptor.
pub(crate) fn identity(fd: c_int) -> Option<Identity> {
    status(fd, c"", libc::AT_EMPTY_PATH)
}

/// Of a path, a link followed.
pub(crate) fn identity_at(path: &CStr) -> Option<Identity> {
    status(libc::AT_FDCWD, path, 0)
}

/// Of a path, a link itself.
pub(crate) fn identity_of_link(dirfd: c_int, path: &CStr) -> Option<Identity> {
    status(dirfd, path, libc::AT_SYMLINK_NOFOLLOW)
}

fn status(fd: c_int, path: &CStr, flags: c_int) -> Option<Identity> {
    let mask = libc::STATX_TYPE | libc::STATX_NLINK | libc::STATX_INO | libc::STATX_BTIME;
    // SAFETY: statx is a structure of integers, for which zeros are valid.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the path is a C string and `found` is large enough by its type.
    if unsafe { libc::statx(fd, path.as_ptr(), flags, mask, &raw mut found) } != 0 {
        return None;
    }
    let kind = u32::from(found.stx_mode) & libc::S_IFMT;
    let file = kind == libc::S_IFREG;
    let born = &found.stx_btime;
    let known = found.stx_mask & libc::STATX_BTIME != 0;
    let born_ns = i128::from(born.tv_sec) * 1_000_000_000 + i128::from(born.tv_nsec);
    let born_ns = if known { born_ns } else { 0 };
    Some(Identity {
        id: FileId {
            device: (found.stx_dev_major, found.stx_dev_minor),
            inode: found.stx_ino,
            born_ns,
        },
        plain: file && found.stx_nlink <= 1 || kind == libc::S_IFDIR || kind == libc::S_IFBLK,
        directory: kind == libc::S_IFDIR,
        named: found.stx_nlink > 0,
    })
}

/// The absolute path of an open file.
pub(crate) fn path_of(fd: c_int) -> Option<PathBuf> {
    let link = std::ffi::CString::new(format!("/proc/self/fd/{fd}")).ok()?;
    let mut bytes = vec![0_u8; PATH_BYTES_MAX];
    // SAFETY: the link is a C string, the buffer has the length that is given.
    let length = unsafe { libc::readlink(link.as_ptr(), bytes.as_mut_ptr().cast(), bytes.len()) };
    bytes.truncate(usize::try_from(length).ok()?);
    if bytes.ends_with(DELETED) && identity(fd).is_some_and(|file| !file.named) {
        bytes.truncate(bytes.len() - DELETED.len());
    }
    // Pipes and the like have no path.
    bytes.starts_with(b"/").then(|| PathBuf::from(OsString::from_vec(bytes)))
}

/// The value of errno is kept over `f`.
pub(crate) fn keeping_errno<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: the address of errno is valid in every thread.
    let errno = unsafe { *libc::__errno_location() };
    let result = f();
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    result
}

/// One line on standard error.
pub(crate) fn complain(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "syncline preload: {text}");
}
