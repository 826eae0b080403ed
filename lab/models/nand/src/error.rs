//! Errors before the first request: profiles and sizes. Requests themselves fail with
//! [`syncline_device::DeviceError`].

/// Why a profile, a specification or a device could not be made.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum NandError {
    /// No built-in profile has this name.
    #[error("no device profile is called '{name}'{nearest}; `syncline-lab devices` lists all")]
    UnknownProfile {
        /// The request.
        name: String,
        /// `; nearest: ` and up to three names, nearest first, or other advice; may be empty.
        nearest: String,
    },
    /// The TOML text is not a profile: syntax, a missing key, an unknown key, a wrong type.
    #[error("profile '{name}' cannot be read: {reason}; compare it with profiles/nexus7-emmc.toml")]
    Parse {
        /// Name or path of the profile.
        name: String,
        /// The parser's error.
        reason: String,
    },
    /// The file of a profile could not be read.
    #[error("profile file {path} cannot be read: {reason}; give a readable TOML file or a name")]
    File {
        /// Path as given.
        path: String,
        /// The operating system's error.
        reason: String,
    },
    /// An override `key=value` names no parameter.
    #[error("device profiles have no parameter '{key}'; the parameters are {known}")]
    UnknownKey {
        /// The key as given.
        key: String,
        /// All keys, sorted.
        known: String,
    },
    /// An override is not `key=integer`.
    #[error("'{text}' is not an override; write key=number, as in nexus7-emmc:streams=4")]
    BadOverride {
        /// The piece of text.
        text: String,
    },
    /// A table of a parameter is not a range.
    #[error(
        "{key} of a device profile: write a number or {{ value = V, low = L, high = H }}, with V \
         from L to H"
    )]
    BadRange {
        /// The parameter.
        key: String,
    },
    /// The profile has no such host.
    #[error("the device profile has no host '{host}'; its hosts are: {known}")]
    UnknownHost {
        /// The host as given.
        host: String,
        /// All hosts.
        known: String,
    },
    /// A parameter has a value that no device can have.
    #[error("profile parameter {key}: {reason}; change it in the profile or by {key}=NUMBER")]
    BadValue {
        /// The parameter.
        key: &'static str,
        /// Reason for the refusal.
        reason: String,
    },
    /// The contents device has a size that cannot be mapped.
    #[error("a simulated flash device of {size_bytes} bytes is not possible: {reason}")]
    BadSize {
        /// Size of the backing in bytes.
        size_bytes: u64,
        /// The allowed values.
        reason: &'static str,
    },
}
