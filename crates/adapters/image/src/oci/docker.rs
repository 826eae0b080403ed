//! Archives of `docker save`: `manifest.json` names configuration and layers by path.
//!
//! Docker before 25 writes `ID/layer.tar` and `DIGEST.json`, later ones blobs as in a layout. Equal
//! layers of old archives are links to the first.

use super::damaged;
use super::digest::Digest;
use super::documents::{Saved, parse};
use super::layer::{Layer, Layers};
use super::layout::diff_ids;
use super::platform::Platform;
use super::store::Store;
use crate::{ImageError, Result};

/// The layers of the image with this name, or of the only one.
pub(super) fn layers(
    store: &Store,
    name: Option<&str>,
    platform: Option<&Platform>,
) -> Result<Layers> {
    let manifest = store.document(b"manifest.json")?.ok_or_else(|| {
        let text = "there is no manifest.json, so this is no archive of `docker save`; check the \
                    path, or write oci-archive:";
        ImageError::Failed(text.to_owned())
    })?;
    let images: Vec<Saved> = parse(&manifest, "manifest.json")?;
    let image = chosen(&images, name)?;
    let document = |path: &str| {
        let bytes = store.document(path.as_bytes())?;
        bytes.ok_or_else(|| damaged(format!("{} is missing", path.escape_debug())))
    };
    let config = document(&image.config)?;
    // Its name is its digest, unless another program wrote the archive.
    if let Some(digest) = Digest::of_path(&image.config) {
        digest.check(&config, "the configuration")?;
    }
    let diff_ids = diff_ids(&config, image.layers.len(), platform)?;
    let layer = |(path, diff_id): (&String, Digest)| {
        let shown = format!("layer {}", path.escape_debug());
        let section = store.open(path.as_bytes())?;
        let section = section.ok_or_else(|| damaged(format!("{shown} is missing")))?;
        Ok(Layer::new(section, shown, Digest::of_path(path), Some(diff_id)))
    };
    Ok(Layers(image.layers.iter().zip(diff_ids).map(layer).collect::<Result<_>>()?))
}

fn chosen<'a>(images: &'a [Saved], name: Option<&str>) -> Result<&'a Saved> {
    let tags = |image: &'a Saved| image.repo_tags.iter().flatten();
    let all = || {
        let all: Vec<String> =
            images.iter().flat_map(tags).map(|tag| tag.escape_debug().to_string()).collect();
        if all.is_empty() { "none has a name".to_owned() } else { all.join(", ") }
    };
    match (name, images) {
        (Some(name), _) => {
            let found = images.iter().find(|image| tags(image).any(|tag| is_named(tag, name)));
            found.ok_or_else(|| {
                let (name, all) = (name.escape_debug(), all());
                let text = format!("there is no image with the name {name}; name one of: {all}");
                ImageError::Usage(text)
            })
        }
        (None, [image]) => Ok(image),
        (None, []) => Err(damaged("it has no image")),
        (None, _) => {
            let text = format!("there are {} images; name one of these: {}", images.len(), all());
            Err(ImageError::Usage(text))
        }
    }
}

/// Returns whether a name means this tag: Docker adds host, library and `latest`.
fn is_named(tag: &str, name: &str) -> bool {
    let plain = |name: &str| {
        let name = name.strip_prefix("docker.io/").unwrap_or(name);
        let name = name.strip_prefix("library/").unwrap_or(name).to_owned();
        let last = name.rsplit('/').next().unwrap_or(&name);
        if last.contains(':') { name } else { format!("{name}:latest") }
    };
    plain(tag) == plain(name)
}

#[cfg(test)]
mod tests {
    use super::is_named;

    #[test]
    fn names_are_completed_as_docker_does() {
        for name in ["app", "app:latest", "docker.io/library/app", "library/app:latest"] {
            assert!(is_named("app:latest", name), "{name}");
        }
        assert!(is_named("host:5000/team/app:1", "host:5000/team/app:1"));
        assert!(!is_named("app:1", "app") && !is_named("host:5000/app:latest", "app"));
        assert!(is_named("host:5000/app:latest", "host:5000/app"));
    }
}
