//! Runs workloads on a profile and prints the table: `measure NAME... [-j MODE] [-n N] [-d PROFILE]
//! [-t]`. With `-t` prints the block trace of the measured part instead.

use syncline_fs::MountOptions;
use syncline_lab::bench::{
    Image, ImageSource, JournalMode, Parameters, Simulation, Stack, find, table,
};
use syncline_lab::{Result, Unobserved};
use syncline_nand::Profile;

fn main() -> Result<()> {
    let (mut names, mut parameters) = (Vec::new(), Parameters::default());
    let (mut device, mut trace) = ("nexus7-emmc".to_owned(), false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_default();
        match argument.as_str() {
            "-j" => parameters.journal_mode = JournalMode::by_name(&value())?,
            "-n" => parameters.operations = value().parse().ok(),
            "-d" => device = value(),
            "-t" => trace = true,
            _ => names.push(argument),
        }
    }
    let profile = Profile::parse_built_in(&device)?;
    let image = Image::load(&ImageSource::default())?;
    let mount = MountOptions::default();
    let simulation =
        Simulation { profile: &profile, image: &image, mount: &mount, parameters: &parameters };
    let mut runs = Vec::new();
    for name in &names {
        for entry in find(name)? {
            let stack = Stack::new(&profile, image.snapshot(), 1_000_000)?;
            runs.push(simulation.run_on(&stack, entry, &Unobserved)?);
            if trace {
                for event in stack.recording.take_events() {
                    println!("{event:?}");
                }
            }
        }
    }
    print!("{}", table(&runs));
    Ok(())
}
