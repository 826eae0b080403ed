//! OCI layouts: `oci-layout`, `index.json` and blobs by digest.

use super::digest::Digest;
use super::documents::{Configuration, Descriptor, Listing, check_layer, listing, parse};
use super::layer::{Layer, Layers};
use super::platform::Platform;
use super::store::{Section, Store};
use super::{NESTED_MAX, damaged, unsupported};
use crate::{ImageError, Result};

/// The layers of the image with this tag, or of the only one.
pub(super) fn layers(
    store: &Store,
    tag: Option<&str>,
    platform: Option<&Platform>,
) -> Result<Layers> {
    let missing = |name: &str| {
        let text = format!("there is no {name}, so this is no OCI layout; check the path");
        ImageError::Failed(text)
    };
    let version = store.document(b"oci-layout")?.ok_or_else(|| missing("oci-layout"))?;
    let version: serde_json::Value = parse(&version, "oci-layout")?;
    let version = version.get("imageLayoutVersion").and_then(|text| text.as_str());
    if !version.is_some_and(|version| version.starts_with("1.")) {
        let shown = version.unwrap_or("none").escape_debug();
        return Err(unsupported(format!(
            "the OCI layout is of version {shown}; only version 1 is read, copy it with skopeo"
        )));
    }
    let index = store.document(b"index.json")?.ok_or_else(|| missing("index.json"))?;
    let Listing::Index(manifests) = listing(&index, "index.json", "")? else {
        return Err(damaged("index.json is no index"));
    };
    let manifests = tagged(manifests, tag)?;
    let mut chosen = chosen(manifests, platform, tag.is_none())?;
    for _ in 0..NESTED_MAX {
        let bytes = blob(store, &chosen)?;
        match listing(&bytes, &chosen.digest, &chosen.media_type)? {
            Listing::Index(manifests) => chosen = self::chosen(manifests, platform, false)?,
            Listing::Manifest { config, layers } => return of(store, &config, &layers, platform),
        }
    }
    Err(damaged(format!("its indexes are nested more than {NESTED_MAX} times")))
}

/// Those with the tag, if one is given.
fn tagged(manifests: Vec<Descriptor>, tag: Option<&str>) -> Result<Vec<Descriptor>> {
    let Some(tag) = tag else { return Ok(manifests) };
    let names = names(&manifests);
    let is = |manifest: &Descriptor| manifest.names().any(|name| name == tag);
    let found: Vec<Descriptor> = manifests.into_iter().filter(is).collect();
    if found.is_empty() {
        let tag = tag.escape_debug();
        let text = format!("there is no image with the tag {tag}; name one of these: {names}");
        return Err(ImageError::Usage(text));
    }
    Ok(found)
}

/// The names of images, for messages.
fn names(manifests: &[Descriptor]) -> String {
    let names: Vec<String> = manifests
        .iter()
        .filter_map(|manifest| manifest.names().next())
        .map(|name| name.escape_debug().to_string())
        .collect();
    if names.is_empty() { "none has a tag".to_owned() } else { names.join(", ") }
}

/// The one image, or the one for the platform. `by_tag`: a tag can tell several apart.
fn chosen(
    mut manifests: Vec<Descriptor>,
    platform: Option<&Platform>,
    by_tag: bool,
) -> Result<Descriptor> {
    if manifests.len() == 1 {
        // Of another platform: what there is, unless one was asked for.
        if let (Some(wanted), Some(there)) = (platform, &manifests[0].platform) {
            if !wanted.takes(there) {
                return Err(absent(wanted, &manifests));
            }
        }
        return Ok(manifests.remove(0));
    }
    let machine = Platform::default_of_machine();
    let wanted = platform.unwrap_or(&machine);
    let names = names(&manifests);
    let of = |takes: fn(&Platform, &Platform) -> bool| {
        let fits = move |manifest: &&Descriptor| {
            manifest.platform.as_ref().is_some_and(|platform| takes(wanted, platform))
        };
        manifests.iter().filter(fits).count()
    };
    let takes: fn(&Platform, &Platform) -> bool =
        if of(Platform::is) > 0 { Platform::is } else { Platform::takes };
    let several = |count: usize| {
        let text = format!("there are {count} images for {wanted}");
        let next = if by_tag { "name a tag" } else { "give --platform with a variant" };
        let list = if by_tag { names.clone() } else { platforms(&manifests) };
        ImageError::Usage(format!("{text}; {next}, there are {list}"))
    };
    let without = manifests.iter().filter(|manifest| manifest.platform.is_none()).count();
    match of(takes) {
        0 if without == manifests.len() && !manifests.is_empty() => {
            let text = format!("there are {} images; name a tag: {names}", manifests.len());
            Err(ImageError::Usage(text))
        }
        0 => Err(absent(wanted, &manifests)),
        1 => {
            let fits = |m: &Descriptor| m.platform.as_ref().is_some_and(|p| takes(wanted, p));
            let at = manifests.iter().position(fits);
            at.map(|at| manifests.swap_remove(at)).ok_or_else(|| damaged("its index is empty"))
        }
        count => Err(several(count)),
    }
}

fn platforms(manifests: &[Descriptor]) -> String {
    let all: Vec<String> = manifests
        .iter()
        .filter_map(|manifest| manifest.platform.as_ref())
        .map(ToString::to_string)
        .collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

fn absent(wanted: &Platform, manifests: &[Descriptor]) -> ImageError {
    let there = platforms(manifests);
    let text = format!("there is no image for {wanted}; give --platform, there are: {there}");
    ImageError::Usage(text)
}

/// The bytes of a blob of the size that its descriptor has.
fn section(store: &Store, descriptor: &Descriptor) -> Result<(Section, Digest)> {
    let digest = Digest::parse(&descriptor.digest)?;
    let section = store.open(&digest.path())?;
    let section = section.ok_or_else(|| damaged(format!("{digest} is missing")))?;
    if section.len() != descriptor.size {
        let (len, size) = (section.len(), descriptor.size);
        return Err(damaged(format!("{digest} has {len} bytes and not {size}")));
    }
    Ok((section, digest))
}

/// A document with the right digest.
fn blob(store: &Store, descriptor: &Descriptor) -> Result<Vec<u8>> {
    let (_, digest) = section(store, descriptor)?;
    let bytes = store.document(&digest.path())?;
    let bytes = bytes.ok_or_else(|| damaged(format!("{digest} is missing")))?;
    digest.check(&bytes, "the document")?;
    Ok(bytes)
}

fn of(
    store: &Store,
    config: &Descriptor,
    layers: &[Descriptor],
    platform: Option<&Platform>,
) -> Result<Layers> {
    let bytes = blob(store, config)?;
    let diff_ids = diff_ids(&bytes, layers.len(), platform)?;
    let layer = |(descriptor, diff_id): (&Descriptor, Digest)| {
        check_layer(descriptor)?;
        let (section, digest) = section(store, descriptor)?;
        Ok(Layer::new(section, format!("layer {digest}"), Some(digest), Some(diff_id)))
    };
    Ok(Layers(layers.iter().zip(diff_ids).map(layer).collect::<Result<_>>()?))
}

/// The digests of the uncompressed layers, from a configuration for the platform.
pub(super) fn diff_ids(
    config: &[u8],
    layers: usize,
    platform: Option<&Platform>,
) -> Result<Vec<Digest>> {
    let config: Configuration = parse(config, "the configuration")?;
    if let Some(wanted) = platform.filter(|wanted| !wanted.takes(&config.platform)) {
        let text = format!("the image is for {}, not for {wanted}", config.platform);
        return Err(ImageError::Usage(format!("{text}; leave --platform out, or copy another")));
    }
    let ids = config.rootfs.diff_ids;
    if ids.len() != layers {
        let text = format!("its configuration has {} layers, its manifest {layers}", ids.len());
        return Err(damaged(text));
    }
    ids.iter().map(|id| Digest::parse(id)).collect()
}
