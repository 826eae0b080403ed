//! The simulated devices.

use serde_json::{Value, json};
use syncline_nand::{Profile, profiles};

use crate::error::Result;

/// Every profile that ships.
pub fn devices() -> Result<Vec<Profile>> {
    profiles().map(|(name, _)| Ok(Profile::by_name(name)?)).collect()
}

/// The document of schema `syncline.devices/1`.
pub fn devices_document() -> Result<Value> {
    let list: Vec<Value> = devices()?.iter().map(one).collect();
    Ok(json!({ "schema": "syncline.devices/1", "devices": list }))
}

fn one(profile: &Profile) -> Value {
    let open = profile.open.iter().map(|open| {
        json!({ "parameter": open.key, "value": open.value, "low": open.low, "high": open.high })
    });
    json!({
        "name": profile.name,
        "summary": profile.source.summary,
        "published": profile.source.published,
        "fitted": profile.source.fitted,
        "dies": profile.geometry.dies(),
        "page_bytes": profile.geometry.page_bytes(),
        "buffer_kib": profile.buffer.buffer_kib,
        "fua": profile.buffer.fua,
        "protected": profile.buffer.protected,
        "streams": profile.ftl.streams,
        "queue_depth": profile.host.queue_depth,
        "open": open.collect::<Vec<_>>(),
        "hosts": profile.hosts.keys().collect::<Vec<_>>(),
    })
}
