//! Properties of the running kernel that FUSE's negotiation does not tell.

/// First releases of each series whose writes past the cache leave nothing old in it.
///
/// A write to a file opened with FOPEN_DIRECT_IO has always taken the pages it meets out of the
/// cache, but a read beside it could bring the old ones back and leave them there. Linux 6.19 does
/// it again after the write (`fs/fuse/file.c`, `fuse_direct_io`, commit b359af8275a9), and the
/// series of January 2026 got that, the numbers here at the latest.
const RIGHT_FROM: [(u32, u32, u32); 3] = [(6, 6, 121), (6, 12, 65), (6, 18, 5)];
/// All of this series and later ones.
const RIGHT_SERIES: (u32, u32) = (6, 19);

/// Reports whether the cache of a kernel with this `uname -r` stays right beside writes past it. A
/// release
/// that is none of kernel.org's may be right and is not believed.
pub(crate) fn keeps_right_beside_direct_writes(release: &str) -> bool {
    let Some((major, minor, patch)) = parsed(release) else { return false };
    let of_series = |from: &(u32, u32, u32)| (from.0, from.1) == (major, minor) && from.2 <= patch;
    (major, minor) >= RIGHT_SERIES || RIGHT_FROM.iter().any(of_series)
}

fn parsed(release: &str) -> Option<(u32, u32, u32)> {
    let numbers = release.split(|c: char| !c.is_ascii_digit() && c != '.').next()?;
    let mut numbers = numbers.split('.').map(str::parse);
    let (major, minor) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    Some((major, minor, numbers.next().and_then(Result::ok).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_with_the_second_invalidation_are_known() {
        for right in
            ["6.19.0", "7.0", "7.2.1-1-amd64", "6.18.5", "6.18.44-fc", "6.12.65+deb13-amd64"]
        {
            assert!(keeps_right_beside_direct_writes(right), "{right}");
        }
        for wrong in
            ["6.18.4", "6.17.13", "6.12.57+deb13-amd64", "6.12", "6.1.170", "5.15.0-91", "", "x"]
        {
            assert!(!keeps_right_beside_direct_writes(wrong), "{wrong}");
        }
    }
}
