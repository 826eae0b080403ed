//! `bench applications`: nine applications of a phone on simulated storage, in virtual time.
//!
//! Every application, device, network, solution and sync mode that is asked for is one run. Ctrl-C
//! ends the current run; the finished runs are reported.

use syncline_fs::{FsError, MountOptions};
use syncline_lab::bench::{
    APPLICATIONS_COLUMNS, AppRun, Image, ImageSource, NETWORKS, Network, PHONE_DEVICES, Phone,
    Solution, applications_json, applications_table, phone_applications,
};
use syncline_lab::report::{Chart, Page, distinct};
use syncline_lab::{LabError, Observer};
use syncline_nand::Profile;

use super::bench::ranged;
use crate::about;
use crate::args::BenchApplications;
use crate::progress::Terminal;
use syncline_cli::error::{Failure, Result};
use syncline_cli::format::Forms;
use syncline_cli::interrupt;

/// Runs everything, then prints.
pub(crate) fn run(args: &BenchApplications) -> Result<()> {
    args.output.check()?;
    let names = names(&args.applications)?;
    let networks = networks(&args.network)?;
    let solutions = args.solution.iter().map(|name| Solution::by_name(name));
    let solutions = solutions.collect::<std::result::Result<Vec<_>, _>>()?;
    let profiles = profiles(args)?;
    let mut runs = Vec::new();
    let done = simulated(args, &names, &profiles, &networks, &solutions, &mut runs);
    if !runs.is_empty() {
        let forms = Forms {
            table: &|| applications_table(&runs),
            json: &|| applications_json(&runs),
            page: &|| page(&runs),
        };
        args.output.publish(&forms, done.is_ok())?;
    }
    done
}

/// The applications of these names; all if none is named.
fn names(given: &[String]) -> Result<Vec<&'static str>> {
    let all: Vec<&'static str> = phone_applications().map(|(name, _)| name).collect();
    let known = |name: &String| {
        all.iter().copied().find(|known| known == name).ok_or_else(|| {
            let text = format!("unknown application `{name}`; choose of {}", all.join(", "));
            Failure::Usage(text)
        })
    };
    if given.is_empty() { Ok(all) } else { given.iter().map(known).collect() }
}

fn networks(names: &[String]) -> Result<Vec<&'static Network>> {
    let of = |name: &String| {
        NETWORKS.iter().find(|known| known.name == *name).ok_or_else(|| {
            let known: Vec<&str> = NETWORKS.iter().map(|known| known.name).collect();
            let text = format!("unknown network `{name}`; choose of {}", known.join(", "));
            Failure::Usage(text)
        })
    };
    names.iter().map(of).collect()
}

/// The profiles that `--device` means; `all`: the chapter's.
fn profiles(args: &BenchApplications) -> Result<Vec<Profile>> {
    let specs = match args.device.device.as_slice() {
        [all] if all == "all" && args.device.uncertainty => {
            ranged(&PHONE_DEVICES.map(str::to_owned))?
        }
        [all] if all == "all" => PHONE_DEVICES.map(str::to_owned).to_vec(),
        _ => args.device.specs()?,
    };
    let all = specs.iter().map(|spec| syncline_lab::experiments::profile(spec));
    Ok(all.collect::<std::result::Result<_, _>>()?)
}

fn simulated(
    args: &BenchApplications,
    names: &[&str],
    profiles: &[Profile],
    networks: &[&Network],
    solutions: &[Solution],
    runs: &mut Vec<AppRun>,
) -> Result<()> {
    let source = match &args.device.image {
        Some(path) => ImageSource::File(path.clone()),
        None => ImageSource::New { size_bytes: args.device.size << 20 },
    };
    let image = Image::load(&source)?;
    let mounts = args.sync.iter().map(|sync| mount_options(&args.device.options, sync));
    let mounts = mounts.collect::<Result<Vec<_>>>()?;
    let builtin = Profile::by_name(PHONE_DEVICES[0]).map_err(LabError::from)?;
    let (seed, scale_percent) = (args.device.seed, args.scale);
    for &name in names {
        for profile in profiles {
            for &network in networks {
                for (&solution, mount) in
                    solutions.iter().flat_map(|with| mounts.iter().map(move |mount| (with, mount)))
                {
                    let phone = Phone { image: &image, mount, seed, scale_percent };
                    let title = format!("{name}, {}", profile.name);
                    let terminal = Terminal::default();
                    terminal.begin(&title, 1);
                    let run = phone.run(name, profile, &builtin, network, solution, &terminal);
                    terminal.end();
                    interrupt::check()?;
                    runs.push(run?);
                }
            }
        }
    }
    Ok(())
}

/// Mount options of the runs in a sync mode.
fn mount_options(options: &str, sync: &str) -> Result<MountOptions> {
    let usage = |err: FsError| {
        Failure::Usage(format!("{err}; see the mount options in `syncline mount --help`"))
    };
    let mut mount = MountOptions::parse(options).map_err(usage)?;
    let items = match sync {
        "packed" => vec!["sync=eager".to_owned(), "log=packed".to_owned()],
        sync => vec![format!("sync={sync}")],
    };
    items.iter().try_for_each(|item| mount.apply(item)).map_err(usage)?;
    Ok(mount)
}

/// Run time of each application by device, as the paper's Figures 4 and 5, and the table.
fn page(runs: &[AppRun]) -> String {
    let mut page = Page::new("Applications of a phone on its storage");
    for name in distinct(runs.iter().map(|run| run.application.as_str())) {
        page.heading(name);
        let of: Vec<&AppRun> = runs.iter().filter(|run| run.application == name).collect();
        page.bars(&Chart {
            title: "run time".to_owned(),
            unit: "s".to_owned(),
            layout: syncline_lab::report::Layout::Rows,
            groups: of.iter().map(|run| label(run)).collect(),
            series: ["processor", "network", "storage"].map(str::to_owned).to_vec(),
            values: of
                .iter()
                .map(|run| vec![run.cpu_s, run.network_s, run.storage_wait_s])
                .collect(),
            ..Chart::default()
        });
    }
    page.heading("All of them");
    page.paragraph(APPLICATIONS_COLUMNS);
    page.text(&applications_table(runs));
    page.finish(&about())
}

fn label(run: &AppRun) -> String {
    let mut label = format!("{}, {}", run.device, run.network);
    if run.solution != Solution::None.name() {
        label = format!("{label}, {}", run.solution);
    }
    if run.sync != "ordered" {
        label = format!("{label}, {}", run.sync);
    }
    label
}
