//! `devices`: the simulated devices, with figures and where these come from.

use syncline_lab::LabError;
use syncline_nand::calibration::{Check, WITHIN_PERCENT};
use syncline_nand::{Open, Profile, profiles};

use crate::args::Devices;
use syncline_cli::error::{Failure, Result};
use syncline_cli::format::{self, Out};
use syncline_cli::interrupt;

/// Lists the profiles or prints one.
pub(crate) fn run(args: &Devices) -> Result<()> {
    let mut out = Out::new();
    if args.check {
        return check(args.name.as_deref(), &mut out);
    }
    if let Some(name) = &args.name {
        Profile::by_name(name).map_err(LabError::from)?;
        let found = profiles().find(|(known, _)| known == name);
        out.text(found.map_or("", |(_, text)| text))?;
        return out.flush();
    }
    if args.json {
        out.text(format::document(&syncline_lab::experiments::devices_document()?))?;
        return out.flush();
    }
    let all = syncline_lab::experiments::devices()?;
    if !args.long {
        let heading = ["name", "page B", "streams", "cache", "what it is"].map(str::to_owned);
        let rows: Vec<Vec<String>> =
            std::iter::once(heading.to_vec()).chain(all.iter().map(short)).collect();
        out.text(format::table(&rows, &[false, true, true, false, false]))?;
        out.text(
            "\n`syncline-lab devices --long` adds figures and sources, `--check` compares them.\n",
        )?;
        out.text("`syncline-lab devices NAME` prints a profile to copy and change.\n")?;
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
    out.text("`syncline-lab devices --check` compares published figures with the model's.\n")?;
    out.text("`syncline-lab devices NAME` prints a profile to copy and change.\n")?;
    out.flush()
}

/// Published figures beside those of the model.
fn check(name: Option<&str>, out: &mut Out) -> Result<()> {
    let checked: Vec<Profile> = match name {
        Some(name) => vec![syncline_lab::experiments::profile(name)?],
        None => profiles()
            .map(|(known, _)| Profile::by_name(known))
            .collect::<std::result::Result<_, _>>()
            .map_err(LabError::from)?,
    };
    let header = ["device", "figure", "published", "model", "off", "source"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    let mut far = 0;
    for profile in &checked {
        for check in &profile.checks {
            interrupt::check()?;
            let model = profile.measure(check).map_err(LabError::from)?;
            let device = match &check.host {
                Some(host) => format!("{}:host={host}", profile.name),
                None => profile.name.clone(),
            };
            far += u32::from(check.excluded.is_none() && !check.holds(model));
            rows.push(compared(&device, check, model));
        }
    }
    out.text(format::table(&rows, &[false, false, true, true, true]))?;
    out.flush()?;
    if far > 0 {
        let text = format!(
            "{far} figures are further than {WITHIN_PERCENT} % from the published ones; correct \
             the profile or say in its check why it is excluded"
        );
        return Err(Failure::Failed(text));
    }
    Ok(())
}

fn compared(device: &str, check: &Check, model: f64) -> Vec<String> {
    let note = check.excluded.as_ref().map(|why| format!(" (not held: {why})"));
    let off = (model / check.published - 1.0) * 100.0;
    let digits = if model < 1.0 { 4 } else { 1 };
    vec![
        device.to_owned(),
        check.figure.name(),
        check.published.to_string(),
        format!("{model:.digits$}"),
        format!("{off:+.1} %"),
        format!("{}{}", check.source, note.unwrap_or_default()),
    ]
}

/// One line of the list.
fn short(profile: &Profile) -> Vec<String> {
    vec![
        profile.name.clone(),
        profile.geometry.page_bytes().to_string(),
        profile.ftl.streams.to_string(),
        cache(profile),
        profile.source.summary.clone(),
    ]
}

fn cache(profile: &Profile) -> String {
    match profile.buffer.buffer_kib {
        0 => "none".to_owned(),
        kib if profile.buffer.protected => format!("none ({kib} KiB, protected)"),
        kib => format!("{kib} KiB{}", if profile.buffer.fua { ", FUA" } else { "" }),
    }
}

fn figures(profile: &Profile) -> Vec<Vec<String>> {
    let (geometry, ftl) = (&profile.geometry, &profile.ftl);
    let slc = match &profile.slc {
        None => "none".to_owned(),
        Some(slc) => format!("{} MiB, {} MiB more when empty", slc.slc_mib, slc.slc_dynamic_mib),
    };
    let row = |name: &str, value: String| vec![format!("  {name}"), value];
    let mut rows = vec![
        row("dies", geometry.dies().to_string()),
        row("page", format!("{} B", geometry.page_bytes())),
        row("volatile cache", cache(profile)),
        row("SLC write cache", slc),
        row("write streams", ftl.streams.to_string()),
        row("queue depth", profile.host.queue_depth.to_string()),
    ];
    for Open { key, value, low, high } in &profile.open {
        rows.push(row(key, format!("{value}; published figures allow {low} to {high}")));
    }
    if !profile.hosts.is_empty() {
        rows.push(row("other hosts", profile.hosts.keys().cloned().collect::<Vec<_>>().join(", ")));
    }
    rows
}
