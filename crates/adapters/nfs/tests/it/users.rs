//! Permissions and privileges, for the users that clients name.

use std::sync::Arc;

use nfs3_types::nfs3::{
    ACCESS3args, CREATE3args, LOOKUP3args, MKDIR3args, MKNOD3args, Nfs3Option, Nfs3Result,
    READ3args, READDIR3args, READDIRPLUS3args, REMOVE3args, RENAME3args, SETATTR3args, WRITE3args,
    cookieverf3, createhow3, devicedata3, mknoddata3, nfs_fh3, nfsstat3, nfstime3, sattr3,
    set_atime, set_mtime, specdata3, stable_how,
};
use nfs3_types::rpc::auth_unix;
use nfs3_types::xdr_codec::Opaque;
use syncline_fs::{Volume, XattrFlags};
use syncline_nfs::Rules;

use crate::support::{Client, Served, entry, image, status};

const DENIED: nfsstat3 = nfsstat3::NFS3ERR_ACCES;
const NOT_PERMITTED: nfsstat3 = nfsstat3::NFS3ERR_PERM;
const DONE: nfsstat3 = nfsstat3::NFS3_OK;

/// A server that checks permissions.
fn checking(name: &str) -> Option<Served> {
    let dev = image(name)?;
    Some(Served::with(Arc::clone(&dev) as _, "", Rules::default()))
}

fn user(served: &Served, uid: u32, gid: u32, groups: &[u32]) -> Client {
    let gids = groups.to_vec();
    Client::of(served.port, "/", &auth_unix { uid, gid, gids, ..auth_unix::default() }).unwrap()
}

/// Calls that a client may be refused.
trait Attempts {
    fn set(&mut self, file: &nfs_fh3, set: sattr3) -> nfsstat3;
    fn make(&mut self, dir: &nfs_fh3, name: &str) -> nfsstat3;
    fn remove(&mut self, dir: &nfs_fh3, name: &str) -> nfsstat3;
    fn reads(&mut self, file: &nfs_fh3) -> nfsstat3;
    fn writes(&mut self, file: &nfs_fh3) -> nfsstat3;
    fn granted(&mut self, file: &nfs_fh3) -> u32;
}

impl Attempts for Client {
    fn set(&mut self, file: &nfs_fh3, set: sattr3) -> nfsstat3 {
        let args =
            SETATTR3args { object: file.clone(), new_attributes: set, guard: Nfs3Option::None };
        status(self.call(async |nfs| nfs.setattr(&args).await))
    }

    fn make(&mut self, dir: &nfs_fh3, name: &str) -> nfsstat3 {
        let how = createhow3::UNCHECKED(sattr3::default());
        let args = CREATE3args { where_: entry(dir, name), how };
        status(self.call(async |nfs| nfs.create(&args).await))
    }

    fn remove(&mut self, dir: &nfs_fh3, name: &str) -> nfsstat3 {
        let args = REMOVE3args { object: entry(dir, name) };
        status(self.call(async |nfs| nfs.remove(&args).await))
    }

    fn reads(&mut self, file: &nfs_fh3) -> nfsstat3 {
        let args = READ3args { file: file.clone(), offset: 0, count: 9 };
        status(self.call(async |nfs| nfs.read(&args).await))
    }

    fn writes(&mut self, file: &nfs_fh3) -> nfsstat3 {
        let (stable, data) = (stable_how::UNSTABLE, Opaque::borrowed(b"x"));
        let args = WRITE3args { file: file.clone(), offset: 0, count: 1, stable, data };
        status(self.call(async |nfs| nfs.write(&args).await))
    }

    fn granted(&mut self, file: &nfs_fh3) -> u32 {
        let args = ACCESS3args { object: file.clone(), access: 0x3f };
        self.call(async |nfs| nfs.access(&args).await).unwrap().access
    }
}

fn mode(mode: u32) -> sattr3 {
    sattr3 { mode: Nfs3Option::Some(mode), ..sattr3::default() }
}

fn owners(uid: Option<u32>, gid: Option<u32>) -> sattr3 {
    let option = |id: Option<u32>| id.map_or(Nfs3Option::None, Nfs3Option::Some);
    sattr3 { uid: option(uid), gid: option(gid), ..sattr3::default() }
}

#[test]
fn a_user_reads_writes_and_names_what_modes_allow() {
    let Some(served) = checking("nfs permissions") else { return };
    let (mut root, mut plain) = (user(&served, 0, 0, &[]), user(&served, 1000, 100, &[]));
    let top = root.root();
    let file = root.create(&top, "file");
    assert_eq!(root.set(&file, mode(0o600)), DONE);
    assert_eq!((plain.granted(&file), root.granted(&file)), (0, 0x0d));
    assert_eq!((plain.reads(&file), plain.writes(&file)), (DENIED, DENIED));
    assert_eq!((root.reads(&file), root.writes(&file)), (DONE, DONE));
    // Who may run a program may read it.
    assert_eq!(root.set(&file, mode(0o711)), DONE);
    assert_eq!((plain.reads(&file), plain.writes(&file)), (DONE, DENIED));
    assert_eq!(plain.granted(&file), 0x20);

    assert_eq!((plain.make(&top, "x"), plain.remove(&top, "file")), (DENIED, DENIED));
    assert_eq!(plain.make(&top, "file"), DONE, "it is there: nothing is made");
    let shared = root.mkdir(&top, "shared");
    assert_eq!(root.set(&shared, mode(0o1777)), DONE);
    root.create(&shared, "of-root");
    plain.create(&shared, "own");
    assert_eq!(plain.remove(&shared, "of-root"), NOT_PERMITTED, "a sticky directory");
    let over = RENAME3args { from: entry(&shared, "own"), to: entry(&shared, "of-root") };
    assert_eq!(status(plain.call(async |nfs| nfs.rename(&over).await)), NOT_PERMITTED);
    assert_eq!(plain.remove(&shared, "own"), DONE);

    // A directory of somebody else gets no other parent: its `..` would change.
    let moved = root.mkdir(&shared, "moved");
    assert_eq!(root.set(&shared, mode(0o777)), DONE);
    let into = plain.mkdir(&shared, "into");
    let args = RENAME3args { from: entry(&shared, "moved"), to: entry(&into, "moved") };
    assert_eq!(status(plain.call(async |nfs| nfs.rename(&args).await)), DENIED);
    assert_eq!(root.set(&moved, mode(0o777)), DONE);
    assert_eq!(status(plain.call(async |nfs| nfs.rename(&args).await)), DONE);

    let device = devicedata3 { dev_attributes: sattr3::default(), spec: specdata3::default() };
    let what = mknoddata3::NF3CHR(device);
    let args = MKNOD3args { where_: entry(&shared, "device"), what };
    assert_eq!(status(plain.call(async |nfs| nfs.mknod(&args).await)), NOT_PERMITTED);
    served.end();
}

#[test]
fn directories_are_listed_and_searched_apart() {
    let Some(served) = checking("nfs directories") else { return };
    let (mut root, mut plain) = (user(&served, 0, 0, &[]), user(&served, 1000, 100, &[]));
    let top = root.root();
    let dir = root.mkdir(&top, "dir");
    root.create(&dir, "file");
    let mut tried = |bits| {
        assert_eq!(root.set(&dir, mode(bits)), DONE);
        let args = LOOKUP3args { what: entry(&dir, "file") };
        let looked = status(plain.call(async |nfs| nfs.lookup(&args).await));
        let (dir, cookieverf) = (dir.clone(), cookieverf3::default());
        let args = READDIR3args { dir: dir.clone(), cookie: 0, cookieverf, count: 4096 };
        let read = status(plain.call(async |nfs| nfs.readdir(&args).await));
        let (dircount, maxcount) = (4096, 4096);
        let args = READDIRPLUS3args { dir, cookie: 0, cookieverf, dircount, maxcount };
        let shown = match plain.call(async |nfs| nfs.readdirplus(&args).await) {
            Nfs3Result::Ok(page) => {
                let handles = page.reply.entries.0.iter().map(|entry| &entry.name_handle);
                handles.filter(|handle| matches!(handle, Nfs3Option::Some(_))).count()
            }
            Nfs3Result::Err(_) => 0,
        };
        (looked, read, shown)
    };
    assert_eq!(tried(0o711), (DONE, DENIED, 0));
    assert_eq!(tried(0o744), (DENIED, DONE, 0), "names without what they name");
    assert_eq!(tried(0o755), (DONE, DONE, 3));
    served.end();
}

#[test]
fn attributes_are_the_owners() {
    let Some(served) = checking("nfs owners") else { return };
    let mut root = user(&served, 0, 0, &[]);
    let (mut owner, mut other) = (user(&served, 5, 50, &[51, 52]), user(&served, 6, 60, &[]));
    let top = root.root();
    let file = root.create(&top, "file");
    assert_eq!(root.set(&file, owners(Some(5), Some(50))), DONE);
    assert_eq!(
        (other.set(&file, mode(0o666)), owner.set(&file, mode(0o604))),
        (NOT_PERMITTED, DONE)
    );
    assert_eq!(owner.set(&file, owners(Some(6), None)), NOT_PERMITTED);
    assert_eq!(owner.set(&file, owners(None, Some(60))), NOT_PERMITTED);
    assert_eq!(other.set(&file, owners(None, Some(60))), NOT_PERMITTED);
    assert_eq!(owner.set(&file, owners(None, Some(52))), DONE, "one of its groups");

    let now = sattr3 {
        atime: set_atime::SET_TO_SERVER_TIME,
        mtime: set_mtime::SET_TO_SERVER_TIME,
        ..sattr3::default()
    };
    let one = sattr3 { mtime: set_mtime::SET_TO_SERVER_TIME, ..sattr3::default() };
    let time = nfstime3 { seconds: 7, nseconds: 0 };
    let chosen = sattr3 { mtime: set_mtime::SET_TO_CLIENT_TIME(time), ..sattr3::default() };
    let size = sattr3 { size: Nfs3Option::Some(3), ..one.clone() };
    assert_eq!((other.set(&file, now.clone()), other.set(&file, size.clone())), (DENIED, DENIED));
    assert_eq!(owner.set(&file, mode(0o606)), DONE);
    assert_eq!((other.set(&file, now), other.set(&file, size)), (DONE, DONE), "who may write");
    assert_eq!(
        (other.set(&file, one), other.set(&file, chosen.clone())),
        (NOT_PERMITTED, NOT_PERMITTED)
    );
    assert_eq!(owner.set(&file, chosen), DONE);

    // Contents are the owner's whatever the mode says, as on Linux's server.
    assert_eq!(owner.set(&file, mode(0)), DONE);
    assert_eq!((owner.reads(&file), owner.writes(&file)), (DONE, DONE));
    assert_eq!((owner.granted(&file), other.reads(&file)), (0, DENIED));
    // A new file goes to nobody else.
    assert_eq!(root.set(&top, mode(0o777)), DONE);
    let how = createhow3::GUARDED(owners(Some(6), None));
    let args = CREATE3args { where_: entry(&top, "gift"), how };
    assert_eq!(status(owner.call(async |nfs| nfs.create(&args).await)), NOT_PERMITTED);
    assert!(served.volume().resolve("/gift").is_err());
    served.end();
}

/// The value of an ACL: for the owner, user 7, the group, the mask, others.
fn acl(named: u8, group: u8, mask: u8) -> Vec<u8> {
    let mut value = vec![2, 0, 0, 0];
    let nobody = u32::MAX;
    for (tag, bits, id) in
        [(1, 6, nobody), (2, named, 7), (4, group, nobody), (16, mask, nobody), (32, 0, nobody)]
    {
        value.extend([tag, 0, bits, 0]);
        value.extend(id.to_le_bytes());
    }
    value
}

#[test]
fn an_acl_decides_and_a_new_mode_moves_its_mask() {
    const ACL: &[u8] = b"system.posix_acl_access";
    let Some(served) = checking("nfs acl") else { return };
    let (mut root, mut named) = (user(&served, 0, 0, &[]), user(&served, 7, 70, &[]));
    let file = root.create(&root.root(), "file");
    assert_eq!(root.set(&file, owners(None, Some(60))), DONE);
    let volume: &Volume = served.volume();
    let inode = volume.resolve("/file").unwrap();
    volume.setxattr(&inode, ACL, &acl(6, 4, 6), XattrFlags::Any).unwrap();
    assert_eq!((named.reads(&file), named.writes(&file)), (DONE, DONE));
    let mut member = user(&served, 8, 60, &[]);
    assert_eq!((member.reads(&file), member.writes(&file)), (DONE, DENIED), "not the mask's bits");
    assert_eq!(user(&served, 9, 90, &[]).reads(&file), DENIED);
    assert_eq!(root.set(&file, mode(0o640)), DONE);
    assert_eq!(volume.getxattr(&inode, ACL).unwrap(), acl(6, 4, 4));
    assert_eq!((named.reads(&file), named.writes(&file)), (DONE, DENIED));
    served.end();
}

#[test]
fn what_is_made_has_the_default_acl_of_its_directory() {
    const ACCESS: &[u8] = b"system.posix_acl_access";
    const DEFAULT: &[u8] = b"system.posix_acl_default";
    let Some(served) = checking("nfs default acl") else { return };
    let mut root = user(&served, 0, 0, &[]);
    let above = root.mkdir(&root.root(), "d");
    assert_eq!(root.set(&above, mode(0o777)), DONE);
    let volume: &Volume = served.volume();
    let xattr = |path: &str, name| volume.getxattr(&volume.resolve(path).unwrap(), name);
    let bits = |path: &str| volume.getattr(&volume.resolve(path).unwrap()).mode & 0o777;
    volume
        .setxattr(&volume.resolve("/d").unwrap(), DEFAULT, &acl(6, 4, 6), XattrFlags::Any)
        .unwrap();
    let (mut owner, mut named) = (user(&served, 8, 80, &[]), user(&served, 7, 70, &[]));
    // No more than the client asks for: its mask is the group's part of the mode.
    let how = createhow3::GUARDED(mode(0o640));
    let args = CREATE3args { where_: entry(&above, "narrow"), how };
    let file = owner.call(async |nfs| nfs.create(&args).await).unwrap().obj.unwrap();
    assert_eq!((xattr("/d/narrow", ACCESS).unwrap(), bits("/d/narrow")), (acl(6, 4, 4), 0o640));
    assert_eq!((named.reads(&file), named.writes(&file)), (DONE, DENIED));
    let wide = MKDIR3args { where_: entry(&above, "sub"), attributes: mode(0o777) };
    let sub = owner.call(async |nfs| nfs.mkdir(&wide).await).unwrap().obj.unwrap();
    assert_eq!(xattr("/d/sub", DEFAULT).unwrap(), acl(6, 4, 6), "and hands it on");
    assert_eq!((xattr("/d/sub", ACCESS).unwrap(), bits("/d/sub")), (acl(6, 4, 6), 0o660));
    // What is there is opened, not made.
    assert_eq!(root.make(&above, "narrow"), DONE);
    assert_eq!(bits("/d/narrow"), 0o640);
    // A plain default ACL is a mode.
    let plain =
        [&[2, 0, 0, 0][..], &acl(6, 4, 6)[4..12], &acl(6, 4, 6)[20..28], &acl(6, 4, 6)[36..44]];
    volume
        .setxattr(&volume.resolve("/d/sub").unwrap(), DEFAULT, &plain.concat(), XattrFlags::Any)
        .unwrap();
    assert_eq!(root.make(&sub, "plain"), DONE);
    assert!(xattr("/d/sub/plain", ACCESS).is_err());
    assert_eq!(bits("/d/sub/plain"), 0o640);
    served.end();
}

#[test]
fn privileges_of_a_file_go_with_its_contents_and_its_group() {
    const CAPABILITY: &[u8] = b"security.capability";
    let Some(served) = checking("nfs privileges") else { return };
    let (mut root, mut plain) = (user(&served, 0, 0, &[]), user(&served, 1000, 100, &[]));
    let file = root.create(&root.root(), "file");
    let volume = served.volume();
    let inode = volume.resolve("/file").unwrap();
    let mut left = |client: &mut Client, bits: u32, change: &dyn Fn(&mut Client)| {
        assert_eq!(root.set(&file, mode(bits)), DONE);
        volume.setxattr(&inode, CAPABILITY, &[1; 20], XattrFlags::Any).unwrap();
        change(client);
        (volume.getattr(&inode).mode & 0o7777, volume.getxattr(&inode, CAPABILITY).is_ok())
    };
    let truncates = |client: &mut Client| {
        let set = sattr3 { size: Nfs3Option::Some(1), ..sattr3::default() };
        assert_eq!(client.set(&file, set), DONE);
    };
    let writes = |client: &mut Client| assert_eq!(client.writes(&file), DONE);
    assert_eq!(left(&mut plain, 0o6777, &writes), (0o777, false));
    assert_eq!(left(&mut plain, 0o6777, &truncates), (0o777, false));
    assert_eq!(left(&mut plain, 0o2767, &writes), (0o767, false), "no member of the group");
    let mut administrator = user(&served, 0, 0, &[]);
    assert_eq!(left(&mut administrator, 0o6777, &writes), (0o6777, false));
    // Set-group-id is given to members only.
    assert_eq!(root.set(&file, owners(Some(1000), Some(60))), DONE);
    assert_eq!(plain.set(&file, mode(0o2755)), DONE);
    assert_eq!(volume.getattr(&inode).mode & 0o7777, 0o755);
    served.end();
}

#[test]
fn who_names_no_user_is_nobody() {
    let Some(served) = checking("nfs nobody") else { return };
    let mut root = user(&served, 0, 0, &[]);
    let top = root.root();
    assert_eq!(root.set(&top, mode(0o777)), DONE);
    let mut nobody = Client::anonymous(served.port).unwrap();
    let file = nobody.create(&top, "file");
    let attr = root.attributes(&file);
    assert_eq!((attr.uid, attr.gid), (65_534, 65_534));
    let secret = root.create(&top, "secret");
    assert_eq!(root.set(&secret, mode(0o600)), DONE);
    assert_eq!(nobody.reads(&secret), DENIED);
    served.end();
}
