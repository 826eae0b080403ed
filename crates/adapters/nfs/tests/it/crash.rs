//! Promises of a reply hold after any power cut behind it.

use std::sync::Arc;

use nfs3_types::nfs3::{RENAME3args, stable_how};
use syncline_device::BlockDevice;
use syncline_testkit::crash::{Budget, CrashDevice, CrashOptions, Explorer, run};

use crate::support::{Client, Served, entry, image, volume};

const FILES: u64 = 12;

fn contents(nr: u64) -> Vec<u8> {
    vec![b'a' + nr as u8; 700 * (1 + nr as usize % 4)]
}

/// Mark 2n: file n is created and its contents are committed; mark 2n + 1: it has its last name.
fn work(port: u16, dev: &CrashDevice) {
    let mut client = Client::connect(port, "/");
    let root = client.root();
    for nr in 0..FILES {
        let file = client.create(&root, &format!("new{nr}"));
        let data = contents(nr);
        let (first, second) = data.split_at(data.len() / 2);
        if nr % 2 == 0 {
            client.write(&file, 0, first, stable_how::UNSTABLE);
            client.write(&file, first.len() as u64, second, stable_how::UNSTABLE);
            client.commit(&file);
        } else {
            client.write(&file, 0, first, stable_how::DATA_SYNC);
            client.write(&file, first.len() as u64, second, stable_how::FILE_SYNC);
        }
        dev.mark(2 * nr);
        let (old, new) = (format!("new{nr}"), format!("file{nr}"));
        let args = RENAME3args { from: entry(&root, &old), to: entry(&root, &new) };
        client.call(async |nfs| nfs.rename(&args).await).unwrap();
        dev.mark(2 * nr + 1);
    }
}

fn judge(image: &syncline_device::MemoryDevice, marks: &[u64]) -> Result<(), String> {
    let dev: Arc<dyn BlockDevice> = Arc::new(image.snapshot());
    let (volume, _) = volume(dev, "");
    for mark in marks {
        let (nr, renamed) = (mark / 2, mark % 2 == 1);
        let last = volume.resolve(format!("/file{nr}"));
        let found = match (last, renamed) {
            (Ok(inode), _) => inode,
            (Err(err), true) => return Err(format!("file{nr}: {err}")),
            (Err(_), false) => {
                volume.resolve(format!("/new{nr}")).map_err(|err| format!("new{nr}: {err}"))?
            }
        };
        let mut data = vec![0; 4000];
        let len = volume.read(&found, 0, &mut data).map_err(|err| err.to_string())?;
        if data[..len] != contents(nr) {
            return Err(format!("file {nr} has {len} bytes"));
        }
    }
    let report = volume.check(&mut |_| true).map_err(|err| err.to_string())?;
    if report.is_clean() { Ok(()) } else { Err(format!("{report:?}")) }
}

#[test]
fn replies_hold_after_every_cut() {
    let Some(base) = image("nfs crash") else { return };
    for options in ["sync=eager", "sync=ordered", "log=packed", "sync=periodic"] {
        let dev = Arc::new(CrashDevice::new(&base, CrashOptions::default()));
        let served = Served::on(Arc::clone(&dev) as _, options);
        work(served.port, &dev);
        let explorer = Explorer::new(dev.log());
        served.end();
        let command = "cargo test -p syncline-nfs --test it replies_hold";
        let (mut marked, mut states) = (0, 0);
        let summary = run(&explorer, &Budget::new(400, 3), command, |state| {
            states += 1;
            marked += u64::from(state.marks().len() as u64 == 2 * FILES);
            judge(&state.image, state.marks())
        });
        println!("{options}: {summary}");
        summary.into_result().unwrap();
        assert!(states >= 100 && marked > 0, "{options}: {states} states, {marked} of them whole");
    }
}
