//! Linux's 64-bit device numbers (`dev_t`), on any system.

/// Linux's 64-bit device number of a major and a minor number (makedev(3)).
pub fn makedev(major: u32, minor: u32) -> u64 {
    let (major, minor) = (u64::from(major), u64::from(minor));
    (major & !0xfff) << 32 | (major & 0xfff) << 8 | (minor & !0xff) << 12 | minor & 0xff
}

/// Major and minor number of [`makedev`].
pub fn device_numbers(rdev: u64) -> (u32, u32) {
    let major = rdev >> 32 & !0xfff | rdev >> 8 & 0xfff;
    let minor = rdev >> 12 & !0xff | rdev & 0xff;
    (major as u32, minor as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_are_linuxes() {
        // As glibc's makedev(3).
        for (major, minor, rdev) in [
            (8, 1, 0x801),
            (259, 70_000, 0x1111_0370),
            (0x1234_5678, 0x9abc_def0, 0x1234_59ab_cde6_78f0),
        ] {
            assert_eq!(makedev(major, minor), rdev);
            assert_eq!(device_numbers(rdev), (major, minor));
        }
    }
}
