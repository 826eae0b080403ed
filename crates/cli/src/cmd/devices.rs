//! `devices`: the simulated devices, with figures and where these come from.

use serde_json::json;
use syncline_nand::{Profile, profiles};

use crate::args::Devices;
use crate::error::Result;
use crate::format::{self, Out};

/// Lists the profiles or prints one.
pub(crate) fn run(args: &Devices) -> Result<()> {
    let mut out = Out::new();
    if let Some(name) = &args.name {
        let profile = Profile::by_name(name)?;
        let found = profiles().find(|(known, _)| *known == profile.name);
        out.text(found.map_or("", |(_, text)| text))?;
        return out.flush();
    }
    let all = profiles().map(|(name, _)| Profile::by_name(name));
    let all = all.collect::<std::result::Result<Vec<_>, _>>()?;
    if args.json {
        let list: Vec<_> = all.iter().map(document).collect();
        let document = json!({ "schema": "syncline.devices/1", "devices": list });
        out.text(format!("{document:#}\n"))?;
        return out.flush();
    }
    for profile in &all {
        out.text(format!("{}: {}\n", profile.name, profile.source.summary))?;
        out.text(format::table(&figures(profile), &[]))?;
        for line in &profile.source.published {
            out.text(format!("  source: {line}\n"))?;
        }
        for line in &profile.source.fitted {
            out.text(format!("  fitted: {line}\n"))?;
        }
        out.text("\n")?;
    }
    out.text("`syncline devices NAME` prints a profile to copy and change.\n")?;
    out.flush()
}

fn figures(profile: &Profile) -> Vec<Vec<String>> {
    let (geometry, ftl) = (&profile.geometry, &profile.ftl);
    let cache = match profile.buffer.buffer_kib {
        0 => "none".to_owned(),
        kib => format!("{kib} KiB{}", if profile.buffer.fua { ", FUA" } else { "" }),
    };
    let row = |name: &str, value: String| vec![format!("  {name}"), value];
    vec![
        row("dies", geometry.dies().to_string()),
        row("page", format!("{} B", geometry.page_bytes())),
        row("volatile cache", cache),
        row("write streams", ftl.streams.to_string()),
        row("queue depth", profile.host.queue_depth.to_string()),
    ]
}

fn document(profile: &Profile) -> serde_json::Value {
    json!({
        "name": profile.name,
        "summary": profile.source.summary,
        "published": profile.source.published,
        "fitted": profile.source.fitted,
        "dies": profile.geometry.dies(),
        "page_bytes": profile.geometry.page_bytes(),
        "buffer_kib": profile.buffer.buffer_kib,
        "fua": profile.buffer.fua,
        "streams": profile.ftl.streams,
        "queue_depth": profile.host.queue_depth,
    })
}
