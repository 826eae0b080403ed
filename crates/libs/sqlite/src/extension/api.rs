//! The table of functions that SQLite hands to an extension: `struct sqlite3_api_routines` of
//! sqlite3ext.h, as far as it is used.
//!
//! Positions in the table never change; later versions append. libsqlite3-sys has the whole table
//! only with its feature `loadable_extension`, which would take the bundled SQLite away from every
//! other crate of the workspace. Tested by `tests/it/extension.rs`: a wrong position crashes the
//! shell.

use std::ffi::{c_char, c_int, c_void};

use rusqlite::ffi::{sqlite3, sqlite3_context, sqlite3_value, sqlite3_vfs};

/// A function that is not used.
type Slot = Option<unsafe extern "C" fn()>;
/// An implementation of a function in SQL.
type Function = unsafe extern "C" fn(*mut sqlite3_context, c_int, *mut *mut sqlite3_value);
type Final = unsafe extern "C" fn(*mut sqlite3_context);
type Destructor = unsafe extern "C" fn(*mut c_void);

/// The first version whose table has every function named here, and in which an extension can ask
/// to stay loaded: 3.14.
pub(crate) const VERSION_MIN: c_int = 3_014_000;

/// Functions of the SQLite that loaded the extension.
#[repr(C)]
pub struct Api {
    slots_0: [Slot; 45],
    pub(crate) create_function: unsafe extern "C" fn(
        *mut sqlite3,
        *const c_char,
        c_int,
        c_int,
        *mut c_void,
        Option<Function>,
        Option<Function>,
        Option<Final>,
    ) -> c_int,
    slots_46: [Slot; 21],
    pub(crate) libversion_number: unsafe extern "C" fn() -> c_int,
    slot_68: Slot,
    pub(crate) mprintf: unsafe extern "C" fn(*const c_char, ...) -> *mut c_char,
    slots_70: [Slot; 15],
    pub(crate) result_text:
        unsafe extern "C" fn(*mut sqlite3_context, *const c_char, c_int, Option<Destructor>),
    slots_86: [Slot; 55],
    pub(crate) vfs_find: unsafe extern "C" fn(*const c_char) -> *mut sqlite3_vfs,
    pub(crate) vfs_register: unsafe extern "C" fn(*mut sqlite3_vfs, c_int) -> c_int,
    slots_143: [Slot; 24],
    pub(crate) log: unsafe extern "C" fn(c_int, *const c_char, ...),
    slots_168: [Slot; 21],
    pub(crate) uri_parameter: unsafe extern "C" fn(*const c_char, *const c_char) -> *const c_char,
    slots_190: [Slot; 2],
    pub(crate) auto_extension: unsafe extern "C" fn(Option<unsafe extern "C" fn()>) -> c_int,
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn positions_are_those_of_sqlite3ext_h() {
        let position = |offset: usize| offset / size_of::<Slot>();
        assert_eq!(position(offset_of!(Api, create_function)), 45);
        assert_eq!(position(offset_of!(Api, libversion_number)), 67);
        assert_eq!(position(offset_of!(Api, mprintf)), 69);
        assert_eq!(position(offset_of!(Api, result_text)), 85);
        assert_eq!(position(offset_of!(Api, vfs_find)), 141);
        assert_eq!(position(offset_of!(Api, vfs_register)), 142);
        assert_eq!(position(offset_of!(Api, log)), 167);
        assert_eq!(position(offset_of!(Api, uri_parameter)), 189);
        assert_eq!(position(offset_of!(Api, auto_extension)), 192);
    }
}
