//! The server with a client that others wrote (`nfs3_client`), and with bytes that no client sends.

#![allow(missing_docs)]

mod crash;
mod hostile;
mod stalls;
mod support;
mod users;

use nfs3_types::nfs3::{
    ACCESS3args, CREATE3args, FSSTAT3args, GETATTR3args, LINK3args, LOOKUP3args, MKDIR3args,
    MKNOD3args, Nfs3Option, Nfs3Result, PATHCONF3args, READDIR3args, READDIRPLUS3args,
    READLINK3args, REMOVE3args, RENAME3args, RMDIR3args, SETATTR3args, SYMLINK3args, cookieverf3,
    createhow3, createverf3, ftype3, mknoddata3, nfs_fh3, nfsstat3, nfstime3, sattr3, set_mtime,
    stable_how, symlinkdata3,
};
use support::{Client, Served, entry, image, status};

#[test]
fn files_and_names_through_a_client() {
    let Some(dev) = image("nfs files") else { return };
    let served = Served::start(&dev, "");
    let mut client = Client::connect(served.port, "/");
    let root = client.root();
    let dir = client.mkdir(&root, "dir");
    let file = client.create(&dir, "file");
    assert_eq!(client.write(&file, 3, b"hello", stable_how::UNSTABLE).0, stable_how::UNSTABLE);
    assert_eq!(client.write(&file, 8, b", world", stable_how::FILE_SYNC).0, stable_how::FILE_SYNC);
    client.commit(&file);
    assert_eq!(client.read(&file, 0, 100), (b"\0\0\0hello, world".to_vec(), true));
    assert_eq!(client.read(&file, 3, 5), (b"hello".to_vec(), false));
    assert_eq!(client.read(&file, 100, 5), (Vec::new(), true));

    let args = LINK3args { file: file.clone(), link: entry(&root, "second") };
    client.call(async |nfs| nfs.link(&args).await).unwrap();
    let args = RENAME3args { from: entry(&dir, "file"), to: entry(&root, "moved") };
    client.call(async |nfs| nfs.rename(&args).await).unwrap();
    let attr = client.attributes(&file);
    assert_eq!((attr.nlink, attr.size, attr.uid, attr.gid), (2, 15, 1000, 100));

    let target =
        symlinkdata3 { symlink_attributes: sattr3::default(), symlink_data: b"dir/x"[..].into() };
    let args = SYMLINK3args { where_: entry(&root, "symbolic"), symlink: target };
    let made = client.call(async |nfs| nfs.symlink(&args).await).unwrap();
    let args = READLINK3args { symlink: made.obj.unwrap() };
    let read = client.call(async |nfs| nfs.readlink(&args).await).unwrap();
    assert_eq!(read.data.as_ref(), b"dir/x");

    let what = mknoddata3::NF3FIFO(sattr3::default());
    let args = MKNOD3args { where_: entry(&root, "pipe"), what };
    let made = client.call(async |nfs| nfs.mknod(&args).await).unwrap();
    assert_eq!(made.obj_attributes.unwrap().type_, ftype3::NF3FIFO);

    let seen = client.list(&root, 512);
    for name in ["dir", "second", "moved", "symbolic", "pipe", "lost+found", ".", ".."] {
        assert_eq!(seen.iter().filter(|seen| *seen == name).count(), 1, "{name}: {seen:?}");
    }
    let args = RMDIR3args { object: entry(&root, "second") };
    assert_eq!(status(client.call(async |nfs| nfs.rmdir(&args).await)), nfsstat3::NFS3ERR_NOTDIR);
    let args = REMOVE3args { object: entry(&root, "dir") };
    assert_eq!(status(client.call(async |nfs| nfs.remove(&args).await)), nfsstat3::NFS3ERR_ISDIR);
    for name in ["second", "moved", "symbolic", "pipe"] {
        let args = REMOVE3args { object: entry(&root, name) };
        client.call(async |nfs| nfs.remove(&args).await).unwrap();
    }
    let args = RMDIR3args { object: entry(&root, "dir") };
    client.call(async |nfs| nfs.rmdir(&args).await).unwrap();
    let args = GETATTR3args { object: file };
    assert_eq!(status(client.call(async |nfs| nfs.getattr(&args).await)), nfsstat3::NFS3ERR_STALE);
    served.end();
    support::clean(&dev);
}

#[test]
fn calls_are_counted_by_kind_and_file() {
    let Some(dev) = image("nfs counts") else { return };
    let served = Served::start(&dev, "");
    let mut client = Client::connect(served.port, "/");
    let file = client.create(&client.root(), "file");
    client.write(&file, 0, &[7; 6000], stable_how::UNSTABLE);
    client.commit(&file);
    client.read(&file, 0, 1000);
    let document = served.status.document(served.volume(), 0, true);
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    let at = |path: &str| document.pointer(path).and_then(|value| value.as_u64());
    for (path, number) in [
        ("/requests/kinds/create", 1),
        ("/requests/kinds/write", 1),
        ("/requests/kinds/commit", 1),
        ("/requests/app_bytes", 6000),
        ("/requests/read_bytes", 1000),
        ("/files/0/written_bytes", 6000),
        ("/files/0/syncs", 1),
        // Of the directory in which it was made, and of the file.
        ("/syncs/operations", 2),
    ] {
        assert_eq!(at(path), Some(number), "{path}: {document}");
    }
    assert_eq!(
        (&document["files"][0]["name"], &document["transport"]),
        (&"file".into(), &"nfs".into())
    );
    served.end();
}

#[test]
fn create_has_three_ways() {
    let Some(dev) = image("nfs create") else { return };
    let served = Served::start(&dev, "");
    let mut client = Client::connect(served.port, "/");
    let root = client.root();
    let mut create = |how: createhow3| {
        let args = CREATE3args { where_: entry(&root, "f"), how };
        client.call(async |nfs| nfs.create(&args).await)
    };
    let verifier = |n| createhow3::EXCLUSIVE(createverf3([n; 8]));
    let first = create(verifier(200)).unwrap().obj.unwrap();
    let again = create(verifier(200)).unwrap().obj.unwrap();
    assert_eq!(first, again, "the same call, sent again");
    assert_eq!(status(create(verifier(7))), nfsstat3::NFS3ERR_EXIST);
    let guarded = createhow3::GUARDED(sattr3::default());
    assert_eq!(status(create(guarded)), nfsstat3::NFS3ERR_EXIST);
    client.write(&first, 0, b"contents", stable_how::FILE_SYNC);
    let truncate = sattr3 { size: Nfs3Option::Some(0), ..sattr3::default() };
    let args = CREATE3args { where_: entry(&root, "f"), how: createhow3::UNCHECKED(truncate) };
    let kept = client.call(async |nfs| nfs.create(&args).await).unwrap();
    assert_eq!((kept.obj.unwrap(), kept.obj_attributes.unwrap().size), (first, 0));
    served.end();
}

#[test]
fn attributes_are_set_and_guarded() {
    let Some(dev) = image("nfs attributes") else { return };
    let served = Served::start(&dev, "");
    let mut client = Client::connect(served.port, "/");
    let root = client.root();
    let file = client.create(&root, "f");
    let ctime = client.attributes(&file).ctime;
    let mtime = nfstime3 { seconds: 77, nseconds: 5 };
    let new_attributes = sattr3 {
        mode: Nfs3Option::Some(0o4755),
        size: Nfs3Option::Some(5000),
        mtime: set_mtime::SET_TO_CLIENT_TIME(mtime),
        ..sattr3::default()
    };
    let set = |guard, new_attributes| SETATTR3args { object: file.clone(), new_attributes, guard };
    let wrong = set(Nfs3Option::Some(nfstime3 { seconds: 1, nseconds: 1 }), sattr3::default());
    let refused = client.call(async |nfs| nfs.setattr(&wrong).await);
    assert_eq!(status(refused), nfsstat3::NFS3ERR_NOT_SYNC);
    let right = set(Nfs3Option::Some(ctime), new_attributes);
    client.call(async |nfs| nfs.setattr(&right).await).unwrap();
    let attr = client.attributes(&file);
    assert_eq!((attr.mode, attr.size, attr.mtime), (0o4755, 5000, mtime));
    // A write by a user takes the set-user-id bit away, and so does a new owner.
    client.write(&file, 0, b"x", stable_how::UNSTABLE);
    assert_eq!(client.attributes(&file).mode, 0o755);
    let bits = sattr3 { mode: Nfs3Option::Some(0o6755), ..sattr3::default() };
    let args = set(Nfs3Option::None, bits);
    client.call(async |nfs| nfs.setattr(&args).await).unwrap();
    let owner = sattr3 { uid: Nfs3Option::Some(4), ..sattr3::default() };
    let args = set(Nfs3Option::None, owner);
    client.call(async |nfs| nfs.setattr(&args).await).unwrap();
    let attr = client.attributes(&file);
    assert_eq!((attr.mode, attr.uid), (0o755, 4));
    served.end();
}

#[test]
fn a_large_directory_comes_whole_in_pages() {
    let Some(dev) = image("nfs listing") else { return };
    let served = Served::start(&dev, "");
    let mut client = Client::connect(served.port, "/");
    let root = client.root();
    for nr in 0..300 {
        client.create(&root, &format!("a-rather-long-name-of-a-file-{nr}"));
    }
    assert_eq!(client.list(&root, 700).len(), 303);
    assert_eq!(client.list(&root, 1 << 20).len(), 303);
    let (mut cookie, mut seen) = (0, 0);
    loop {
        let cookieverf = cookieverf3::default();
        let args = READDIRPLUS3args {
            dir: root.clone(),
            cookie,
            cookieverf,
            dircount: 4096,
            maxcount: 4096,
        };
        let page = client.call(async |nfs| nfs.readdirplus(&args).await).unwrap().reply;
        seen += page.entries.0.len();
        for entry in page.entries.0 {
            assert_eq!(entry.name_attributes.unwrap().fileid, entry.fileid);
            cookie = entry.cookie;
        }
        if page.eof {
            break;
        }
    }
    assert_eq!(seen, 303);
    let cookieverf = cookieverf3::default();
    let args = READDIR3args { dir: root, cookie: 0, cookieverf, count: 130 };
    let small = client.call(async |nfs| nfs.readdir(&args).await);
    assert_eq!(status(small), nfsstat3::NFS3ERR_TOOSMALL);
    served.end();
}

#[test]
fn the_volume_says_what_it_is() {
    let Some(dev) = image("nfs volume") else { return };
    let served = Served::start(&dev, "");
    let inside = Client::connect(served.port, "/lost+found").root();
    let mut client = Client::connect(served.port, "");
    let root = client.root();
    assert_ne!(inside, root);
    let args = FSSTAT3args { fsroot: root.clone() };
    let stat = client.call(async |nfs| nfs.fsstat(&args).await).unwrap();
    assert!(stat.tbytes < 64 << 20 && stat.fbytes > 10 << 20, "{stat:?}");
    assert!(stat.abytes <= stat.fbytes && stat.ffiles < stat.tfiles, "{stat:?}");
    let args = PATHCONF3args { object: root.clone() };
    let conf = client.call(async |nfs| nfs.pathconf(&args).await).unwrap();
    assert_eq!((conf.linkmax, conf.name_max, conf.no_trunc), (65_000, 255, true));
    let args = ACCESS3args { object: root.clone(), access: 0x3f };
    let access = client.call(async |nfs| nfs.access(&args).await).unwrap();
    assert_eq!(access.access, 0x1f, "a directory is not executed");
    let args = LOOKUP3args { what: entry(&root, "none") };
    assert_eq!(status(client.call(async |nfs| nfs.lookup(&args).await)), nfsstat3::NFS3ERR_NOENT);
    assert!(Client::try_connect(served.port, "/none").is_err());
    served.end();

    let served = Served::start(&dev, "ro");
    let mut client = Client::connect(served.port, "/");
    let args = MKDIR3args { where_: entry(&root, "d"), attributes: sattr3::default() };
    assert_eq!(status(client.call(async |nfs| nfs.mkdir(&args).await)), nfsstat3::NFS3ERR_ROFS);
    served.end();
}

#[test]
fn handles_stay_over_a_restart_and_the_verifier_does_not() {
    let Some(dev) = image("nfs restart") else { return };
    let served = Served::start(&dev, "");
    let mut client = Client::connect(served.port, "/");
    let root = client.root();
    let file = client.create(&root, "f");
    let (_, before) = client.write(&file, 0, b"kept", stable_how::FILE_SYNC);
    served.end();

    let served = Served::start(&dev, "");
    let mut client = Client::connect(served.port, "/");
    assert_eq!(client.read(&file, 0, 9).0, b"kept");
    let (_, after) = client.write(&file, 0, b"more", stable_how::UNSTABLE);
    assert_ne!(before, after);
    let args = REMOVE3args { object: entry(&root, "f") };
    client.call(async |nfs| nfs.remove(&args).await).unwrap();
    // The number is used again: by another file, which the handle must not name.
    let number = |file: &nfs_fh3| file.data[8..12].to_vec();
    let again =
        (0..4000).find(|nr| number(&client.create(&root, &format!("g{nr}"))) == number(&file));
    assert!(again.is_some(), "no new file got the number");
    let args = GETATTR3args { object: file };
    let stale = client.call(async |nfs| nfs.getattr(&args).await);
    assert_eq!(status(stale), nfsstat3::NFS3ERR_STALE);
    let foreign = nfs_fh3 { data: vec![9; 16].into() };
    let args = GETATTR3args { object: foreign };
    let stale = client.call(async |nfs| nfs.getattr(&args).await);
    assert!(matches!(stale, Nfs3Result::Err((nfsstat3::NFS3ERR_STALE, _))));
    served.end();
}

#[test]
fn clients_work_at_the_same_time() {
    let Some(dev) = image("nfs clients") else { return };
    let served = Served::start(&dev, "");
    let port = served.port;
    let threads = (0..4u8).map(|nr| {
        std::thread::spawn(move || {
            let mut client = Client::connect(port, "/");
            let root = client.root();
            let dir = client.mkdir(&root, &format!("d{nr}"));
            for step in 0..50 {
                let file = client.create(&dir, &format!("f{step}"));
                client.write(&file, 0, &[nr; 9000], stable_how::UNSTABLE);
                client.commit(&file);
                assert_eq!(client.read(&file, 0, 10_000).0, [nr; 9000]);
            }
        })
    });
    for thread in threads.collect::<Vec<_>>() {
        thread.join().unwrap();
    }
    served.end();
    support::clean(&dev);
}
