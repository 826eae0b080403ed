//! Names the shared library for the loader: `libsyncline.so.0` as long as the interface is 0.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libsyncline.so.0");
}
