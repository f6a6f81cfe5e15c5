//! The application that runs a program of Linux: what its `main` does.
//!
//! The first argument is the program's path, the others are the program's own. Its files are those that are
//! packed with the application. Of the environment `env.NAME` is the program's variable `NAME`, `directory`
//! where it begins, `user` whom it runs as, `USER:GROUP` by numbers, and `volume.N`, from 0 on, where the
//! directory is that the host lends by the device of that number; `trace` is the number of the device that
//! lends the directory whose file `trace` calls are noted in, and `trace.calls`, `trace.style` and
//! `trace.string` are what [`TraceOptions`] reads; `root` is `disk` if the files are not packed but on a
//! disk; `stop_signal` is the number of the signal by which the first process is asked to end; the rest is
//! nom's.

use crate::family::{Beginning, FamilyParts, ProcessFamily};
use crate::name_files::NetworkNames;
use crate::process::file_time;
use crate::stop_request::{self, StopRequest};
use crate::task::STACK_BYTES;
use crate::terminal::with_files;
use crate::trace::{TraceOptions, TraceSink, Tracer};
use alloc::boxed::Box;
use alloc::format;
use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use linux_raw_sys::general::O_WRONLY;
use nom_app::sockets::{self, Network};
use nom_fs::{Caller, Credentials, MountAccess, Vfs};
use nom_ninep::{Client, Fid};
use nom_port::disk::Disk;
use nom_port::root_disk::BLOCK_BYTES;
use nom_rt::event_loop::EventLoop;
use nom_rt::meter::INFRASTRUCTURE;
use nom_sys::port::{Clock, Dma, Doorbell, Function, Idle, Interrupter};
use nom_virtio::block::BlockDevice;
use nom_virtio::ninep::NinepDevice;

/// The part of memory that files may take that are written.
const FILES_PART: u64 = 2;
/// The part of memory that keeps what was read from a disk, until somebody has too little.
const BLOCKS_PART: u64 = 2;
/// Before the number of each variable that says where a volume is.
const VOLUME: &str = "volume.";
/// Variables that a program finds if nobody says otherwise.
const VARIABLES: [&str; 4] = [
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/root",
    "LANG=C.UTF-8",
    "TERM=linux",
];

/// Runs the program, and returns its status.
///
/// # Errors
/// Why it cannot be run.
pub fn run() -> Result<u8, Box<dyn core::error::Error>> {
    nom_sys::program::start().map_err(|error| {
        format!("programs of Linux need `makes_code = true` in the manifest, and FSGSBASE: {}", error.name())
    })?;
    let arguments: Vec<Vec<u8>> = nom_app::args().map(|argument| argument.as_bytes().to_vec()).collect();
    let path = arguments.first().cloned().ok_or("no program: its path is to be the first argument")?;
    let (mut event_loop, network) = event_loop()?;
    let handle = event_loop.handle().clone();
    let threads = sockets::threads(&handle, STACK_BYTES);
    let tracer = tracer()?;
    let family = ProcessFamily::new(FamilyParts { vfs: files()?, network, handle, threads, tracer });
    write_names(&family);
    let directory = nom_app::var("directory").unwrap_or("/").as_bytes();
    let stop = StopRequest::new(family.clone(), stop_request::signal(nom_app::var("stop_signal"))?);
    family.handle.add_poller(INFRASTRUCTURE, stop);
    let begin = Beginning { directory, user: user()?, arguments: &arguments, environment: &environment() };
    family.start(&path, &begin)?;
    Ok(event_loop.run() as u8)
}

/// The loop, with a network if the machine has one for this application.
fn event_loop() -> Result<(EventLoop<Clock, Idle>, Option<Network>), Box<dyn core::error::Error>> {
    if nom_app::var("network").is_some() || has_network() {
        let (event_loop, network) = sockets::start()?;
        return Ok((event_loop, Some(network)));
    }
    let core = nom_sys::cores::current();
    let event_loop = EventLoop::new(core, Clock, Idle, Arc::new(Doorbell));
    event_loop.handle().set_preemption(&Interrupter);
    Ok((event_loop, None))
}

fn has_network() -> bool {
    nom_app::net::find().is_ok()
}

fn files() -> Result<Vfs, Box<dyn core::error::Error>> {
    const PAGE: u64 = 4096;
    let now = file_time();
    let mut vfs = Vfs::new(now, nom_app::memory_free() / FILES_PART / PAGE);
    let (credentials, root) = (Credentials::default(), vfs.root());
    let caller = Caller::first(&credentials, root, now);
    match nom_app::var("root") {
        Some("disk") => {
            let disk = disk().map_err(|error| format!("the disk with the files: {error}"))?;
            let blocks = nom_app::memory_free() / BLOCKS_PART / BLOCK_BYTES;
            vfs.unpack_disk(&caller, disk, blocks as usize)
        }
        _ => vfs.unpack(&caller, nom_sys::start::archive()),
    }
    .map_err(|error| format!("the packed files: {error}"))?;
    let mounted = vfs.mount_system(&caller, crate::runners::processors());
    mounted.map_err(|error| format!("/dev, /proc and /sys: {error}"))?;
    mount_volumes(&mut vfs, &caller)?;
    Ok(vfs)
}

/// The first disk that there is.
fn disk() -> Result<Box<dyn Disk>, Box<dyn core::error::Error>> {
    let is_disk = |vendor, device| vendor == VENDOR && DISKS.contains(&device);
    let index = nom_sys::devices::find_nth(0, is_disk).map_err(|error| error.name())?;
    let function = Function::acquire(index).map_err(|error| error.name())?;
    Ok(Box::new(BlockDevice::open(function, &mut Dma)?))
}

/// Vendor of all these devices.
const VENDOR: u32 = 0x1af4;
/// Device identifiers of disks: modern, and transitional.
const DISKS: [u32; 2] = [0x1042, 0x1001];
/// Likewise of devices that lend a directory.
const LENDERS: [u32; 2] = [0x1049, 0x1009];

/// Covers directories and files with those that the host lends.
fn mount_volumes(vfs: &mut Vfs, caller: &Caller<'_>) -> Result<(), Box<dyn core::error::Error>> {
    for number in 0.. {
        let name = format!("{VOLUME}{number}");
        let Some(path) = nom_app::var(&name) else { break };
        let lent = volume(number).map_err(|error| format!("the volume at {path}: {error}"))?;
        let access = match nom_app::var(&format!("{name}.access")) {
            Some("ro") => MountAccess::ReadOnly,
            _ => MountAccess::ReadWrite,
        };
        let mounted = match nom_app::var(&format!("{name}.file")) {
            Some(file) => vfs.mount_host_file(caller, path.as_bytes(), lent, (file.as_bytes(), access)),
            None => vfs.mount_host(caller, path.as_bytes(), lent, access),
        };
        mounted.map_err(|error| format!("the volume at {path}: {error}"))?;
    }
    Ok(())
}

/// The directory that the device with this number among its like lends, and its root.
fn volume(number: usize) -> Result<(Client, Fid), Box<dyn core::error::Error>> {
    let is_lender = |vendor, device| vendor == VENDOR && LENDERS.contains(&device);
    let index = nom_sys::devices::find_nth(number, is_lender).map_err(|error| error.name())?;
    let function = Function::acquire(index).map_err(|error| error.name())?;
    Ok(Client::new(Box::new(NinepDevice::open(function, &mut Dma)?))?)
}

/// The file that lines of a trace go to, in the directory that is lent for it.
const TRACE_FILE: &[u8] = b"trace";

/// Who notes calls, if the environment has a variable `trace`.
fn tracer() -> Result<Option<Tracer>, Box<dyn core::error::Error>> {
    use nom_app::var;
    let Some(text) = var("trace") else { return Ok(None) };
    let number =
        text.parse().map_err(|_| format!("the environment's trace=`{text}`: a number is expected"))?;
    let options = TraceOptions::read(var("trace.calls"), var("trace.style"), var("trace.string"));
    let options = options.map_err(|error| format!("the environment's trace.{error}"))?;
    let (mut client, directory) = volume(number).map_err(|error| format!("the trace: {error}"))?;
    let file = client.walk(directory, Some(TRACE_FILE)).map_err(|error| format!("the trace: {error}"))?;
    client.open(file, O_WRONLY).map_err(|error| format!("the trace: {error}"))?;
    Ok(Some(Tracer::new(options, Box::new(TraceFile { client, file, offset: 0 }))))
}

/// A file of the host's that a trace is written to.
struct TraceFile {
    client: Client,
    file: Fid,
    offset: u64,
}

impl TraceSink for TraceFile {
    fn put(&mut self, mut text: &[u8]) {
        while !text.is_empty() {
            // A host that takes nothing has a trace that ends there.
            let Ok(count @ 1..) = self.client.write_at(self.file, self.offset, text) else { return };
            self.offset += count as u64;
            text = &text[count..];
        }
    }
}

/// How often, and how many times, it is looked whether an address was lent.
const LOOK_EACH_NS: u64 = 50_000_000;
const LOOKS_MAX: u32 = 200;

/// Writes what is known, or will be when the network has lent an address.
fn write_names(family: &Rc<ProcessFamily>) {
    let names = names_of(family);
    if names.address.is_some() || family.network.is_none() {
        return put_names(family, &names);
    }
    let own = family.clone();
    family.handle.spawn(async move {
        let mut names = names;
        for _ in 0..LOOKS_MAX {
            if names.address.is_some() {
                break;
            }
            own.handle.sleep(LOOK_EACH_NS).await;
            names = names_of(&own);
        }
        put_names(&own, &names);
    });
}

fn names_of(family: &ProcessFamily) -> NetworkNames {
    let Some(network) = &family.network else { return NetworkNames::default() };
    network.with(|sockets| {
        let config = sockets.stack().config();
        let addresses = || config.addresses.iter().map(|cidr| cidr.address);
        let address = addresses().find(IpAddr::is_ipv4).or_else(|| addresses().next());
        NetworkNames { address, nameservers: config.nameservers.clone() }
    })
}

fn put_names(family: &ProcessFamily, names: &NetworkNames) {
    if let Err(error) = with_files(family, |vfs, caller| names.write(vfs, caller)) {
        nom_app::println!("/etc/hosts and /etc/resolv.conf cannot be written: {error}");
    }
}

/// Before the name of each variable that is the program's.
const OWN: &str = "env.";

fn environment() -> Vec<Vec<u8>> {
    let own = || nom_app::vars().filter_map(|(name, value)| Some((name.strip_prefix(OWN)?, value)));
    let is_said = |default: &&str| own().any(|(name, _)| default.split('=').next() == Some(name));
    let defaults = VARIABLES.iter().filter(|default| !is_said(default));
    let said = own().map(|(name, value)| format!("{name}={value}").into_bytes());
    defaults.map(|default| default.as_bytes().to_vec()).chain(said).collect()
}

/// Whom the program runs as: user and group, root's if nobody says otherwise.
fn user() -> Result<(u32, u32), alloc::string::String> {
    let text = nom_app::var("user").unwrap_or("0:0");
    let numbers =
        text.split_once(':').and_then(|(user, group)| Some((user.parse().ok()?, group.parse().ok()?)));
    numbers.ok_or_else(|| format!("the environment's user=`{text}`: USER:GROUP by numbers is expected"))
}
