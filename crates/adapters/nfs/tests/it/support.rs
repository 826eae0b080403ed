//! A server in this process, and a client that waits.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use nfs3_client::Nfs3ConnectionBuilder;
use nfs3_client::tokio::{TokioConnector, TokioIo};
use nfs3_types::nfs3::{
    COMMIT3args, CREATE3args, GETATTR3args, MKDIR3args, Nfs3Result, READ3args, READDIR3args,
    WRITE3args, cookieverf3, createhow3, diropargs3, fattr3, nfs_fh3, nfsstat3, sattr3, stable_how,
    writeverf3,
};
use nfs3_types::rpc::{auth_unix, opaque_auth};
use nfs3_types::xdr_codec::Opaque;
use syncline_control::status::{Image, Sources, Status};
use syncline_device::{BlockDevice, Clock, MemoryDevice, WallClock};
use syncline_fs::{MountOptions, Volume};
use syncline_nfs::{PROTOCOL, Rules, Server};
use syncline_testkit::{ImageSpec, Need, mkfs, require};

const MIB: u64 = 1 << 20;

/// A new volume in memory, unless the test has to be skipped.
pub fn image(name: &str) -> Option<Arc<MemoryDevice>> {
    require(name, &[Need::E2fsck]).then(|| {
        let spec = ImageSpec { block_size_bytes: 1024, ..ImageSpec::with_size(32 * MIB) };
        Arc::new(MemoryDevice::from_bytes(&mkfs(&spec).bytes()))
    })
}

/// e2fsck finds nothing.
pub fn clean(dev: &Arc<MemoryDevice>) {
    let volume = volume(Arc::clone(dev) as _, "ro").0;
    let report = volume.check(&mut |_| true).unwrap();
    assert!(report.is_clean(), "{report:?}");
}

pub fn volume(dev: Arc<dyn BlockDevice>, options: &str) -> (Volume, Arc<dyn Clock>) {
    let clock: Arc<dyn Clock> = Arc::new(WallClock::new());
    let options = MountOptions::parse(options).unwrap();
    (Volume::mount(dev, Arc::clone(&clock), options).unwrap(), clock)
}

pub struct Served {
    pub port: u16,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
    volume: Volume,
    pub status: Arc<Status>,
}

impl Served {
    pub fn start(dev: &Arc<MemoryDevice>, options: &str) -> Served {
        Served::on(Arc::clone(dev) as _, options)
    }

    /// Without permissions: the root directory of the image belongs to root.
    pub fn on(dev: Arc<dyn BlockDevice>, options: &str) -> Served {
        Served::with(dev, options, Rules { permissions: false, ..Rules::default() })
    }

    pub fn with(dev: Arc<dyn BlockDevice>, options: &str, rules: Rules) -> Served {
        let (volume, clock) = volume(dev, options);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (image, options) = (Image::default(), MountOptions::default());
        let of = Sources::default();
        let status = Arc::new(Status::new(image, &options, Arc::clone(&clock), PROTOCOL, of));
        let served = (volume.clone(), Arc::clone(&status));
        let mut server = Server::new(listener, served, 7, rules).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let thread = std::thread::spawn(move || server.run(&*clock, &asked).unwrap());
        Served { port, stop, thread, volume, status }
    }

    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Stops and unmounts.
    pub fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        self.volume.unmount().unwrap();
    }
}

pub fn entry<'a>(dir: &nfs_fh3, name: &'a str) -> diropargs3<'a> {
    diropargs3 { dir: dir.clone(), name: name.as_bytes().into() }
}

/// The error of a call.
pub fn status<T, E>(result: Nfs3Result<T, E>) -> nfsstat3 {
    match result {
        Nfs3Result::Ok(_) => nfsstat3::NFS3_OK,
        Nfs3Result::Err((status, _)) => status,
    }
}

type Connection = nfs3_client::Nfs3Connection<TokioIo<tokio::net::TcpStream>>;

pub struct Client {
    runtime: tokio::runtime::Runtime,
    connection: Connection,
}

impl Client {
    pub fn connect(port: u16, path: &str) -> Client {
        Client::try_connect(port, path).unwrap()
    }

    pub fn try_connect(port: u16, path: &str) -> Result<Client, String> {
        Client::of(port, path, &auth_unix { uid: 1000, gid: 100, ..auth_unix::default() })
    }

    /// A client that names this user.
    pub fn of(port: u16, path: &str, user: &auth_unix) -> Result<Client, String> {
        Client::with(port, path, opaque_auth::auth_unix(user))
    }

    /// A client that names no user.
    pub fn anonymous(port: u16) -> Result<Client, String> {
        Client::with(port, "/", opaque_auth::default())
    }

    fn with(port: u16, path: &str, credential: opaque_auth<'static>) -> Result<Client, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let builder = Nfs3ConnectionBuilder::new(TokioConnector, "127.0.0.1", path)
            .connect_from_privileged_port(false)
            .mount_port(port)
            .nfs3_port(port)
            .credential(credential);
        let connection = runtime.block_on(builder.mount()).map_err(|err| err.to_string())?;
        Ok(Client { runtime, connection })
    }

    pub fn root(&self) -> nfs_fh3 {
        self.connection.root_nfs_fh3()
    }

    pub fn call<T, E: std::fmt::Debug>(
        &mut self,
        call: impl AsyncFnOnce(&mut Connection) -> Result<T, E>,
    ) -> T {
        self.runtime.block_on(call(&mut self.connection)).unwrap()
    }

    pub fn create(&mut self, dir: &nfs_fh3, name: &str) -> nfs_fh3 {
        let how = createhow3::GUARDED(sattr3::default());
        let args = CREATE3args { where_: entry(dir, name), how };
        self.call(async |nfs| nfs.create(&args).await).unwrap().obj.unwrap()
    }

    pub fn mkdir(&mut self, dir: &nfs_fh3, name: &str) -> nfs_fh3 {
        let args = MKDIR3args { where_: entry(dir, name), attributes: sattr3::default() };
        self.call(async |nfs| nfs.mkdir(&args).await).unwrap().obj.unwrap()
    }

    pub fn write(
        &mut self,
        file: &nfs_fh3,
        offset: u64,
        data: &[u8],
        stable: stable_how,
    ) -> (stable_how, writeverf3) {
        let (count, data) = (data.len() as u32, Opaque::borrowed(data));
        let args = WRITE3args { file: file.clone(), offset, count, stable, data };
        let done = self.call(async |nfs| nfs.write(&args).await).unwrap();
        assert_eq!(done.count, count);
        (done.committed, done.verf)
    }

    pub fn commit(&mut self, file: &nfs_fh3) {
        let args = COMMIT3args { file: file.clone(), offset: 0, count: 0 };
        self.call(async |nfs| nfs.commit(&args).await).unwrap();
    }

    pub fn read(&mut self, file: &nfs_fh3, offset: u64, count: u32) -> (Vec<u8>, bool) {
        let args = READ3args { file: file.clone(), offset, count };
        let read = self.call(async |nfs| nfs.read(&args).await).unwrap();
        (read.data.to_vec(), read.eof)
    }

    pub fn attributes(&mut self, file: &nfs_fh3) -> fattr3 {
        let args = GETATTR3args { object: file.clone() };
        self.call(async |nfs| nfs.getattr(&args).await).unwrap().obj_attributes
    }

    /// All names of a directory, in pages of at most `count` bytes.
    pub fn list(&mut self, dir: &nfs_fh3, count: u32) -> Vec<String> {
        let (mut cookie, mut names) = (0, Vec::new());
        loop {
            let cookieverf = cookieverf3::default();
            let args = READDIR3args { dir: dir.clone(), cookie, cookieverf, count };
            let page = self.call(async |nfs| nfs.readdir(&args).await).unwrap().reply;
            for entry in page.entries.0 {
                cookie = entry.cookie;
                names.push(String::from_utf8_lossy(entry.name.as_ref()).into_owned());
            }
            if page.eof {
                return names;
            }
        }
    }
}
