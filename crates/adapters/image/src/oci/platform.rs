//! Platforms: `os/architecture[/variant]`, in Go's words.

use std::fmt::{self, Display};

use serde::Deserialize;

/// A platform of a container image.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Platform {
    /// Such as `linux`.
    #[serde(default)]
    pub os: String,
    /// Such as `amd64`.
    #[serde(default)]
    pub architecture: String,
    /// Such as `v8`.
    #[serde(default)]
    pub variant: Option<String>,
}

/// Names of architectures that others have, and Go's name and variant.
const ALIASES: [(&str, &str, Option<&str>); 8] = [
    ("x86_64", "amd64", None),
    ("x86", "386", None),
    ("i386", "386", None),
    ("i686", "386", None),
    ("aarch64", "arm64", None),
    ("armhf", "arm", Some("v7")),
    ("armel", "arm", Some("v6")),
    ("loongarch64", "loong64", None),
];

impl Platform {
    /// Parses `linux/arm64/v8`.
    pub fn parse(text: &str) -> Option<Platform> {
        let parts: Vec<&str> = text.split('/').collect();
        let (os, architecture, variant) = match parts[..] {
            [os, architecture] => (os, architecture, None),
            [os, architecture, variant] => (os, architecture, Some(variant)),
            _ => return None,
        };
        let alias = ALIASES.iter().find(|(name, ..)| *name == architecture);
        let (architecture, implied) = alias.map_or((architecture, None), |a| (a.1, a.2));
        let variant = variant.or(implied).map(str::to_owned);
        let (os, architecture) = (os.to_owned(), architecture.to_owned());
        let whole = !os.is_empty() && !architecture.is_empty();
        whole.then_some(Platform { os, architecture, variant })
    }

    /// Linux on this machine's processor.
    pub fn default_of_machine() -> Platform {
        let little = cfg!(target_endian = "little");
        let architecture = match std::env::consts::ARCH {
            "powerpc64" if little => "ppc64le",
            "powerpc64" => "ppc64",
            "mips64" if little => "mips64le",
            "mips" if little => "mipsle",
            other => {
                ALIASES.iter().find(|(name, ..)| *name == other).map_or(other, |alias| alias.1)
            }
        };
        Platform { os: "linux".to_owned(), architecture: architecture.to_owned(), variant: None }
    }

    /// The variant, or the one that its absence means.
    fn variant(&self) -> &str {
        match (&self.variant, &self.architecture[..]) {
            (Some(variant), _) if !variant.is_empty() => variant,
            (_, "arm64") => "v8",
            (_, "arm") => "v7",
            (_, "amd64") => "v1",
            _ => "",
        }
    }

    /// Returns whether an image of the platform `other` will do; without a variant any of them.
    pub(super) fn takes(&self, other: &Platform) -> bool {
        let same = self.os == other.os && self.architecture == other.architecture;
        same && (self.variant.is_none() || self.variant() == other.variant())
    }

    /// Returns whether both are the same, with the usual variant where none is named.
    pub(super) fn is(&self, other: &Platform) -> bool {
        self.takes(other) && self.variant() == other.variant()
    }
}

impl Display for Platform {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.os.escape_debug(), self.architecture.escape_debug())?;
        match &self.variant {
            Some(variant) if !variant.is_empty() => write!(out, "/{}", variant.escape_debug()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platforms_are_gos_and_have_usual_variants() {
        let of = |text: &str| Platform::parse(text).unwrap();
        assert_eq!(of("linux/aarch64"), of("linux/arm64"));
        assert!(of("linux/arm64").takes(&of("linux/arm64/v9")));
        assert!(of("linux/arm64/v8").takes(&of("linux/arm64")));
        assert!(!of("linux/arm/v6").takes(&of("linux/arm/v7")));
        assert!(of("linux/armhf").is(&of("linux/arm")) && !of("linux/arm").is(&of("linux/arm/v6")));
        assert!(!of("linux/amd64").takes(&of("windows/amd64")));
        for bad in ["", "linux", "linux/", "/amd64", "a/b/c/d"] {
            assert_eq!(Platform::parse(bad), None, "{bad}");
        }
        assert_eq!(of("linux/arm/v6").to_string(), "linux/arm/v6");
        assert_eq!(Platform::default_of_machine().os, "linux");
    }
}
