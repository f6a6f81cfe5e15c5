//! Machines run by QEMU.

use crate::command::{self, Streams, file};
use crate::config::{Allocation, MachineConfig, Memory, Network};
use crate::disk;
use crate::firmware;
use crate::machine::{Event, Exit, Machine, PluggedDevice, Vmm};
use crate::meminfo;
use crate::namespace;
use crate::power_button::Finger;
use crate::qmp::Monitor;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// QEMU's program.
pub const PROGRAM: &str = "qemu-system-x86_64";
/// Words before a command that have the kernel kill it when the thread that starts it dies, so that not even
/// SIGKILL leaves it behind.
pub const BOUND_TO_THIS: [&str; 3] = ["setpriv", "--pdeathsig", "KILL"];

/// Runs machines with the QEMU that is installed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Qemu;

impl Vmm for Qemu {
    fn start(&self, config: &MachineConfig, directory: &Path) -> Result<Box<dyn Machine>> {
        check(config)?;
        // QEMU talks on the streams it starts with, which end when it does: standard input is a socket for
        // the control channel, standard output the serial line.
        let (ours, theirs) = UnixStream::pair().context("cannot make a socket pair")?;
        let mut child = program(config, &BOUND_TO_THIS)
            .args(firmware::arguments(config.kind))
            .args(command::arguments(config, Streams::Attached))
            .current_dir(directory)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {PROGRAM}: is qemu-system-x86 installed?"))?;
        let (sender, events) = channel();
        if let Some(serial) = child.stdout.take() {
            watch_serial(serial, sender.clone());
        }
        watch_control(ours, sender);
        let complaints = child.stderr.take().map(collect);
        Ok(Box::new(QemuMachine {
            directory: directory.to_owned(),
            child,
            events,
            complaints,
            taken_at_start: taken_at_start(config),
            exit: None,
            requested: false,
            finger: None,
        }))
    }

    fn start_detached(&self, config: &MachineConfig, directory: &Path) -> Result<u32> {
        check(config)?;
        let output = program(config, &[])
            .args(firmware::arguments(config.kind))
            .args(command::arguments(config, Streams::Detached))
            .current_dir(directory)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot start {PROGRAM}: is qemu-system-x86 installed?"))?;
        if !output.status.success() {
            let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
            bail!(
                "QEMU refuses the machine: {}",
                explained(complaints, false, taken_at_start(config)).trim()
            );
        }
        let pid = std::fs::read_to_string(directory.join(file::PID)).context("QEMU left no process id")?;
        pid.trim().parse().with_context(|| format!("QEMU's process id is `{}`", pid.trim()))
    }
}

fn check(config: &MachineConfig) -> Result<()> {
    config.check()?;
    meminfo::check(config, &meminfo::read())?;
    let mut forwards = config.networks.iter().flat_map(Network::forwards);
    if let Some(forward) = forwards.find(|forward| forward.address.is_some_and(|a| a.is_ipv6())) {
        bail!("port {}: QEMU's user-mode network listens at IPv4 addresses only", forward.host);
    }
    Ok(())
}

/// The memory that a machine takes before it runs.
fn taken_at_start(config: &MachineConfig) -> Option<Memory> {
    (config.allocation == Allocation::Immediate).then_some(config.memory)
}

/// QEMU's complaints, with how much memory it takes at the start if that may have ended it: it does not say
/// so itself where there is not enough, and nothing at all where Linux `killed` it for that.
fn explained(complaints: String, killed: bool, taken_at_start: Option<Memory>) -> String {
    match taken_at_start {
        Some(memory) if killed || complaints.contains("memory") => {
            format!("{} (it takes {memory} of memory at the start)", complaints.trim())
        }
        _ => complaints,
    }
}

/// QEMU where the machine's network is, and its disks are mounted, behind the words `before`.
fn program(config: &MachineConfig, before: &[&str]) -> Command {
    let before = before.iter().map(|word| (*word).to_owned());
    let mut words = before.chain(disk::words(&config.directories)).chain([PROGRAM.to_owned()]);
    let first = words.next().unwrap_or_default();
    let namespace = config.networks.iter().find_map(Network::namespace);
    let mut command = match namespace {
        Some(namespace) => namespace::command_in(namespace, first),
        None => Command::new(first),
    };
    command.args(words);
    command
}

fn watch_serial(mut serial: impl Read + Send + 'static, events: Sender<Event>) {
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = serial.read(&mut buffer) {
            if events.send(Event::Serial(buffer[..length].to_vec())).is_err() {
                return;
            }
        }
    });
}

fn watch_control(control: UnixStream, events: Sender<Event>) {
    std::thread::spawn(move || {
        for line in BufReader::new(control).lines().map_while(Result::ok) {
            let Ok(line) = line.parse();
            if events.send(Event::Control(line)).is_err() {
                return;
            }
        }
    });
}

fn collect(mut stream: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // A stream that breaks off has given all it will.
        let _ = stream.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

struct QemuMachine {
    directory: PathBuf,
    child: Child,
    /// Disconnected when both streams have ended.
    events: Receiver<Event>,
    complaints: Option<JoinHandle<String>>,
    taken_at_start: Option<Memory>,
    exit: Option<Exit>,
    requested: bool,
    /// Presses the power button as long as it is there.
    finger: Option<Finger>,
}

impl QemuMachine {
    fn monitor(&self) -> Result<Monitor> {
        Monitor::connect(&self.directory, file::MONITOR)
    }

    /// Waits for the process, whose streams have ended, and remembers how it did.
    fn reap(&mut self) -> Result<Exit> {
        self.finger = None;
        if self.exit.is_none() {
            let code = self.child.wait().context("cannot wait for QEMU")?.code();
            let complaints = self.complaints.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
            let complaints = explained(complaints, code.is_none(), self.taken_at_start);
            self.exit = Some(Exit { code, requested: self.requested, complaints });
        }
        Ok(self.exit.clone().unwrap_or_default())
    }
}

impl Machine for QemuMachine {
    fn next_event(&mut self, timeout: Duration) -> Result<Option<Event>> {
        match self.events.recv_timeout(timeout) {
            Ok(event) => Ok(Some(event)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => self.reap().map(|exit| Some(Event::Ended(exit))),
        }
    }

    fn process_id(&self) -> u32 {
        self.child.id()
    }

    fn shut_down(&mut self) {
        self.requested = true;
        if self.exit.is_none() {
            self.finger.get_or_insert_with(|| Finger::press(&self.directory));
        }
    }

    fn stop(&mut self) -> Result<()> {
        self.requested = true;
        if self.exit.is_none() {
            signal(self.child.id(), Signal::TERM)?;
        }
        Ok(())
    }

    fn kill(&mut self) {
        self.requested = true;
        self.finger = None;
        // It fails only if the process has been waited for, and so is gone.
        let _ = self.child.kill();
    }

    fn plug(&mut self, device: &PluggedDevice) -> Result<()> {
        let mut arguments = json!(device.properties);
        arguments["driver"] = json!(device.driver);
        arguments["id"] = json!(device.id);
        arguments["bus"] = json!(format!("hotplug{}", device.slot));
        self.monitor()?.execute("device_add", arguments).map(drop)
    }

    fn unplug(&mut self, id: &str, timeout: Duration) -> Result<()> {
        let mut monitor = self.monitor()?;
        monitor.execute("device_del", json!({ "id": id }))?;
        let gone = |event: &str, data: &serde_json::Value| event == "DEVICE_DELETED" && data["device"] == id;
        monitor.wait_for(timeout, gone).with_context(|| format!("the guest holds on to {id}")).map(drop)
    }
}

impl Drop for QemuMachine {
    fn drop(&mut self) {
        self.kill();
        // Its streams end now; what is left of them concerns nobody.
        let _ = self.child.wait();
    }
}

/// Sends `signal` to a process.
///
/// # Errors
/// If there is no such process, or it is somebody else's.
pub fn signal(process: u32, signal: Signal) -> Result<()> {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw).context("no process id")?;
    kill_process(pid, signal).with_context(|| format!("cannot signal process {process}"))
}

/// A machine that some other process started, found by its directory.
#[derive(Clone, Debug)]
pub struct DetachedMachine {
    directory: PathBuf,
    process: ProcessIdentity,
}

impl DetachedMachine {
    /// The machine in `directory` whose monitor is `process`.
    pub fn new(directory: PathBuf, process: ProcessIdentity) -> DetachedMachine {
        DetachedMachine { directory, process }
    }

    /// Presses the machine's power button, and kills it if it runs on after `patience`. `false` if it had to
    /// be killed.
    ///
    /// # Errors
    /// If it cannot even be killed.
    pub fn stop(&self, patience: Duration) -> Result<bool> {
        let finger = (!patience.is_zero()).then(|| Finger::press(&self.directory));
        if self.ends_within(patience) {
            return Ok(true);
        }
        drop(finger);
        if self.process.is_running() {
            signal(self.process.id, Signal::KILL)?;
            self.ends_within(Duration::from_secs(5));
        }
        Ok(false)
    }

    fn ends_within(&self, patience: Duration) -> bool {
        let deadline = std::time::Instant::now() + patience;
        while self.process.is_running() {
            if std::time::Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }
}

/// A process, told from later ones that are given the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ProcessIdentity {
    /// Its number.
    pub id: u32,
    /// When it was started, in the kernel's ticks since boot.
    pub started: u64,
}

impl ProcessIdentity {
    /// The process that has this number now, if there is one.
    pub fn of(id: u32) -> Option<ProcessIdentity> {
        let mut stat = String::new();
        File::open(format!("/proc/{id}/stat")).ok()?.read_to_string(&mut stat).ok()?;
        // The second field is the program's name in parentheses and may contain anything.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let (state, started) = (*fields.first()?, fields.get(19)?.parse().ok()?);
        (state != "Z").then_some(ProcessIdentity { id, started })
    }

    /// Whether it still runs.
    pub fn is_running(&self) -> bool {
        ProcessIdentity::of(self.id) == Some(*self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_from_a_later_one_with_its_number() {
        let ours = ProcessIdentity::of(std::process::id()).expect("this process runs");
        assert!(ours.is_running());
        assert!(!ProcessIdentity { started: ours.started + 1, ..ours }.is_running());
    }

    #[test]
    fn whoever_could_not_take_memory_says_how_much() {
        let refused = "cannot set up guest memory 'memory': Cannot allocate memory\n".to_owned();
        let memory = Some(Memory::DEFAULT);
        for (complaints, killed) in [(refused.clone(), false), (String::new(), true)] {
            let explained = explained(complaints, killed, memory);
            assert!(explained.contains("64M of memory"), "{explained}");
        }
        assert_eq!(explained(refused.clone(), false, None), refused);
        assert_eq!(explained("no such device".to_owned(), false, memory), "no such device");
        assert_eq!(explained(String::new(), false, memory), "");
    }

    #[test]
    fn ipv6_forwards_are_refused_by_name() {
        let mut config = MachineConfig::new(PathBuf::from("image"));
        let forward =
            crate::config::Forward { address: "::1".parse().ok(), host: 8080, guest: 80, udp: false };
        config.networks = vec![Network::User { forwards: vec![forward] }];
        assert!(check(&config).expect_err("refused").to_string().contains("8080"));
    }
}
