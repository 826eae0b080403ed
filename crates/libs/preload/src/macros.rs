//! Definitions of the functions that programs call in place of libc's.

/// A static [`crate::system::Real`] for each of libc's own functions.
macro_rules! reals {
    ($($name:ident: $type:ty = $symbol:literal;)*) => {
        $(
            // SAFETY: the signature is that of the function's manual page.
            pub(crate) static $name: Real<$type> = unsafe { Real::new($symbol) };
        )*
    };
}

/// Passes a call on. The arguments are the caller's, who answers for them as without this library.
/// If this libc lacks the function, the result is -1, or the value after `or`, with ENOSYS.
macro_rules! pass_on {
    ($real:ident or $none:expr, $($argument:expr),*) => {
        match real::$real.get() {
            // SAFETY: the function has this signature, the arguments are those of our own caller.
            Some(function) => unsafe { function($($argument),*) },
            None => {
                crate::system::set_errno(libc::ENOSYS);
                $none
            }
        }
    };
    ($real:ident, $($argument:expr),*) => { pass_on!($real or -1, $($argument),*) };
}

/// Functions that programs call.
macro_rules! hooks {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty $body:block)*) => {
        $(
            /// See its manual page.
            ///
            /// # Safety
            /// As of libc's.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> $result $body
        )*
    };
}

/// Names of one function whose bodies are equal on 64-bit systems.
macro_rules! alike {
    ($($name:ident),* = $arguments:tt -> $result:ty $body:block) => {
        $(hooks! { fn $name $arguments -> $result $body })*
    };
}

pub(crate) use {alike, hooks, pass_on, reals};
