//! The documents of an image: indexes, manifests, configurations (OCI image specification 1.1,
//! Docker's image manifest version 2, schema 2, and the archives of `docker save`).

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::platform::Platform;
use super::{damaged, unsupported};
use crate::Result;

/// Refers to a blob.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    #[serde(default)]
    pub(super) media_type: String,
    pub(super) digest: String,
    pub(super) size: u64,
    pub(super) platform: Option<Platform>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

/// Annotations that name an image: of OCI layouts, and of containerd.
const REF_NAME: &str = "org.opencontainers.image.ref.name";
const IMAGE_NAME: &str = "io.containerd.image.name";

impl Descriptor {
    /// The tag, or the name with the tag.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let annotations = self.annotations.iter();
        let names = annotations.flat_map(|all| [all.get(REF_NAME), all.get(IMAGE_NAME)]);
        names.flatten().map(String::as_str)
    }
}

/// An index or a manifest: which of them is to be seen from its parts.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    schema_version: Option<u64>,
    media_type: Option<String>,
    manifests: Option<Vec<Descriptor>>,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
    artifact_type: Option<String>,
    fs_layers: Option<IgnoredAny>,
}

/// A document that lists others, or layers.
#[derive(Debug)]
pub(super) enum Listing {
    Index(Vec<Descriptor>),
    Manifest { config: Descriptor, layers: Vec<Descriptor> },
}

#[derive(Debug, Deserialize)]
pub(super) struct Configuration {
    #[serde(flatten)]
    pub(super) platform: Platform,
    pub(super) rootfs: RootFs,
}

#[derive(Debug, Deserialize)]
pub(super) struct RootFs {
    pub(super) diff_ids: Vec<String>,
}

/// An image in an archive of `docker save`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Saved {
    pub(super) config: String,
    #[serde(default)]
    pub(super) repo_tags: Option<Vec<String>>,
    pub(super) layers: Vec<String>,
}

pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8], what: &str) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|err| damaged(format!("{what}: {err}")))
}

/// Media types of configurations of container images.
const CONFIGS: [&str; 2] =
    ["application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"];

/// Reads an index or manifest. `media_type` is that of the descriptor that led to it, or empty.
pub(super) fn listing(bytes: &[u8], what: &str, media_type: &str) -> Result<Listing> {
    let document: Document = parse(bytes, what)?;
    let own = document.media_type.as_deref().unwrap_or(media_type);
    let is_old = |text: &str| text.starts_with("application/vnd.docker.distribution.manifest.v1");
    if document.schema_version == Some(1) || document.fs_layers.is_some() || is_old(own) {
        return Err(unsupported(format!(
            "{what} is a Docker manifest of schema 1; convert the image with `skopeo copy --format \
             v2s2`"
        )));
    }
    // One document with both could be taken for either.
    let is_index = own.contains(".index.") || own.contains(".manifest.list.");
    match (document.manifests, document.config, document.layers) {
        (Some(manifests), None, None) if is_index || own.is_empty() => {
            Ok(Listing::Index(manifests))
        }
        (None, Some(config), Some(layers)) if !is_index => {
            let artifact = document.artifact_type.is_some();
            let of_image = config.media_type.is_empty() || CONFIGS.contains(&&*config.media_type);
            if artifact || !of_image {
                let kind = document.artifact_type.unwrap_or(config.media_type);
                return Err(unsupported(format!(
                    "{what} is an artifact of the type {}, no container image; name another tag",
                    kind.escape_debug()
                )));
            }
            Ok(Listing::Manifest { config, layers })
        }
        _ => Err(damaged(format!("{what} is neither an index nor a manifest"))),
    }
}

/// Refuses layers that are not here or cannot be read, by their media type.
pub(super) fn check_layer(layer: &Descriptor) -> Result<()> {
    let (media_type, digest) = (layer.media_type.escape_debug(), layer.digest.escape_debug());
    let refused = |text: &str| Err(unsupported(format!("layer {digest} ({media_type}) {text}")));
    let has = |part: &str| layer.media_type.contains(part);
    if has("+encrypted") {
        return refused("is encrypted; decrypt the image with `skopeo copy --decryption-key`");
    }
    if has(".foreign.") || has(".nondistributable.") {
        return refused("is foreign and no part of the image; get its layers from their publisher");
    }
    let known = layer.media_type.is_empty()
        || layer.media_type.starts_with("application/vnd.oci.image.layer.v1.tar")
        || layer.media_type.starts_with("application/vnd.docker.image.rootfs.diff.tar");
    if known { Ok(()) } else { refused("is no layer of a file system; name another tag") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(json: &str, media_type: &str) -> String {
        match listing(json.as_bytes(), "it", media_type) {
            Ok(Listing::Index(all)) => format!("index of {}", all.len()),
            Ok(Listing::Manifest { layers, .. }) => format!("manifest of {}", layers.len()),
            Err(err) => err.to_string(),
        }
    }

    #[test]
    fn documents_are_one_thing_or_refused() {
        let config = r#""config":{"digest":"d","size":1}"#;
        assert_eq!(text(r#"{"manifests":[]}"#, ""), "index of 0");
        assert_eq!(text(&format!("{{{config},\"layers\":[]}}"), ""), "manifest of 0");
        let both = format!("{{{config},\"layers\":[],\"manifests\":[]}}");
        for damaged in [&both, "{}", "[]", "x", "{\"layers\":[]}"] {
            assert!(text(damaged, "").contains("is damaged"), "{damaged}");
        }
        let index = "application/vnd.oci.image.index.v1+json";
        assert!(text(&format!("{{{config},\"layers\":[]}}"), index).contains("neither"));
        assert_eq!(text(r#"{"manifests":[]}"#, index), "index of 0");
        for old in [r#"{"schemaVersion":1}"#, r#"{"fsLayers":[]}"#] {
            assert!(text(old, "").contains("schema 1; convert"), "{old}");
        }
        let helm = r#""config":{"digest":"d","size":1,"mediaType":"application/vnd.cncf.helm"}"#;
        assert!(text(&format!("{{{helm},\"layers\":[]}}"), "").contains("artifact of the type"));
    }

    #[test]
    fn layers_that_are_not_here_are_named() {
        let check = |media_type: &str| {
            let layer = format!(r#"{{"mediaType":"{media_type}","digest":"d","size":1}}"#);
            check_layer(&serde_json::from_str(&layer).unwrap())
        };
        for good in ["tar", "tar+gzip", "tar+zstd"] {
            assert!(check(&format!("application/vnd.oci.image.layer.v1.{good}")).is_ok());
        }
        assert!(check("application/vnd.docker.image.rootfs.diff.tar.gzip").is_ok());
        for (bad, why) in [
            ("application/vnd.oci.image.layer.v1.tar+gzip+encrypted", "is encrypted; "),
            ("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", "is foreign"),
            ("application/vnd.oci.image.layer.nondistributable.v1.tar+gzip", "is foreign"),
            ("application/vnd.in-toto+json", "is no layer"),
        ] {
            assert!(check(bad).unwrap_err().to_string().contains(why), "{bad}");
        }
    }
}
