//! An image for each job of machines that start in a second, all at once, without a mount or root:
//! `jobs DIRECTORY JOB...`.

use std::env;
use std::path::Path;

use syncline::{Builder, Make, Result, SetAttr};

fn mode(mode: u16) -> SetAttr {
    SetAttr { mode: Some(mode), ..SetAttr::default() }
}

/// Makes an image with the job in it; returns its size.
fn image(path: &Path, job: &str) -> Result<u64> {
    let make = Make::default().with(|make| make.spare_bytes = Some(16 << 20));
    let mut builder = Builder::new(path, &make)?;
    builder.directory(b"/tmp", &mode(0o1777), &[])?;
    builder.file(b"/init", &mode(0o755), &[])?;
    builder.write(b"#!/bin/sh\nexec sh /etc/job\n")?;
    builder.link(b"/sbin/init", b"/init")?;
    builder.file(b"/etc/job", &mode(0o644), &[(b"user.origin", b"jobs")])?;
    builder.write(format!("echo {job}\n").as_bytes())?;
    builder.finish()
}

/// Makes an image for each job, each in a thread; returns their sizes.
fn images(dir: &Path, jobs: &[String]) -> Result<Vec<u64>> {
    std::thread::scope(|scope| {
        let one = |job: &String| image(&dir.join(format!("{job}.img")), job);
        let all: Vec<_> = jobs.iter().map(|job| scope.spawn(move || one(job))).collect();
        let ended = all.into_iter().map(|one| one.join().expect("a build does not panic"));
        ended.collect()
    })
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let jobs: Vec<String> = env::args().skip(2).collect();
    let dir = env::args().nth(1).ok_or("usage: jobs DIRECTORY JOB...")?;
    let sizes = images(Path::new(&dir), &jobs)?;
    println!("{} images of {} bytes", sizes.len(), sizes.iter().sum::<u64>());
    Ok(())
}

#[cfg(test)]
mod tests {
    use syncline::{Access, Disk, OpenOptions, check};

    #[test]
    fn each_job_has_its_image() {
        let dir = tempfile::tempdir().unwrap();
        let jobs = ["one", "two", "three"].map(str::to_owned);
        let sizes = super::images(dir.path(), &jobs).unwrap();
        for (job, size) in jobs.iter().zip(sizes) {
            let path = dir.path().join(format!("{job}.img"));
            assert_eq!(path.metadata().unwrap().len(), size);
            assert!(check(&path, &mut |_| true).unwrap().is_clean());
            let disk = Disk::open(&path, &OpenOptions::default()).unwrap();
            let file = disk.open_file(b"/etc/job", Access::READ, 0).unwrap();
            let mut text = [0; 64];
            let read = file.read(&mut text).unwrap();
            assert_eq!(text[..read], *format!("echo {job}\n").as_bytes());
            drop(file);
            disk.close().unwrap();
        }
        assert!(super::images(dir.path(), &jobs).is_err(), "the images are there already");
    }
}
