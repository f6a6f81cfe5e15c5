//! The command line, as people type it.

use crate::address::ProviderAddress;
use crate::mounts::Volume;
use crate::numbers::whole;
use crate::restart::{self, Policy};
use crate::store::Group;
use crate::strace::Trace;
use clap::{Args, Parser, Subcommand, ValueEnum};
use nom_image::manifest::Port;
use nom_provider::Source;
use nom_vmm::{Accelerator, Iommu, MachineKind, Memory};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::rc::Rc;

/// Boot applications on nom, each machine in milliseconds.
#[derive(Debug, Parser)]
#[command(name = "nom", version, max_term_width = 100, after_help = TOP_EXAMPLES)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const TOP_EXAMPLES: &str = "Examples:
  nom run hello              run an application in a new machine, in the foreground
  nom run -d --name web -p 8080:80 nhttpd    in the background, with a port of the host
  nom ps                     list running machines
  nom logs -f web            follow what one writes
  nom stop web               stop it; `nom start web` starts it again, `nom rm web` removes it
  nom up -d                  start the machines that nom.toml describes
  nom demo                   what a server earns, beside Linux
  nom test                   run every test
  nom doctor                 say what this computer can do";

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run an application in a new machine.
    Run(Box<Run>),
    /// Show the system calls of a Linux program in a machine, or say which it can make.
    Strace(Box<crate::strace::Options>),
    /// List machines.
    Ps(Ps),
    /// Print what a machine wrote to its console.
    Logs(crate::logs::Logs),
    /// Print details of machines, as JSON.
    Inspect(crate::machines::Inspect),
    /// Show what running machines use.
    Stats(crate::stats::Stats),
    /// Show what each activity of a server (a tenant, a site, a class of clients) uses, and its profit.
    Top(crate::top::Top),
    /// Show or change how a server schedules its activities (tenants, sites, classes of clients).
    Grid(crate::grid::Grid),
    /// Stop running machines.
    Stop(crate::stop::Stop),
    /// Start stopped machines.
    Start(crate::start::Start),
    /// Stop machines and start them again.
    Restart(crate::start::Restart),
    /// Remove stopped machines and their logs.
    Rm(crate::stop::Remove),
    /// Start the machines that a file describes.
    Up(crate::up::Up),
    /// Stop and remove the machines that a file describes.
    Down(crate::up::Down),
    /// Print what other programs need to start machines: a unit of systemd.
    Generate(crate::generate::Generate),
    /// Write the bootable image of an application.
    Build(Build),
    /// Make an application of your own, outside of the checkout.
    New(crate::new::New),
    /// Show what a server earns, beside Linux, and write a report.
    Demo(Demo),
    /// Measure, and write records, figures and a report.
    #[command(subcommand)]
    Bench(crate::bench::Bench),
    /// Run the server of prices and bills: it names prices, keeps the ledger, shows what machines report.
    Provider(Box<crate::provider::Options>),
    /// Run tests: all, one suite, or those of your own application: `nom test DIR`.
    Test(Delegated),
    /// Run the servers on a simulated network, from a seed.
    Sim(Delegated),
    /// Make a release: a tar archive and a Debian package.
    Package(Delegated),
    /// Check the source code against the project's rules.
    Tidy(Delegated),
    /// Run a fuzzer on what strangers can send: `nom fuzz tcp 60`.
    Fuzz(Delegated),
    /// Remove what no build needs any more.
    Clean(crate::clean::Options),
    /// Say what this computer can do, and what to do about the rest.
    Doctor(Doctor),
    /// Print a completion script for a shell.
    Completions(Completions),
    /// Print the manual: pages of roff, each ended by a form feed.
    #[command(hide = true)]
    Manual,
    /// Write the debugger's list of applications where they are now.
    #[command(hide = true)]
    Symbols(Symbols),
}

impl Command {
    /// Whether others connect to this process: one that leaves must not end it by SIGPIPE, which a gathered
    /// write to its connection raises.
    pub fn has_connections(&self) -> bool {
        matches!(
            self,
            Command::Run(_)
                | Command::Strace(_)
                | Command::Start(_)
                | Command::Demo(_)
                | Command::Provider(_)
        )
    }
}

/// `nom run`.
#[derive(Debug, Args)]
#[command(after_help = "Ctrl-C asks the applications to end, as SIGTERM does, and again, ends them at once.
A Linux program is asked by its stop signal, as `docker stop` does.

The status is the application's own if it ends by itself, 0 for a server that was asked to; 125 if the
machine failed, or never began; 130 after Ctrl-C and 143 after SIGTERM or `nom stop` if an application does
not handle that; 137 if it did not end within 10 s (`nom stop --time`) and was killed.

Examples:
  nom run hello
  nom run hello -- one two             with arguments
  nom run --cpus 4 --memory 1G hello
  nom run --preallocate -m 1G memcached    with all memory taken before it serves
  nom run -v /srv/www:/ nhttpd         with the files of a directory
  nom run -d --name web -p 127.0.0.1:8080:80 nhttpd
  nom run -d --restart on-failure:3 memcached
  nom run --network tap memcached      as root: in a network namespace of its own
  nom run -d --network bridge -p 8080:80 --cpus 2 nhttpd    as root: several cores behind a port
  nom run --host memcached             as root: as a process on a TAP device, with no machine
  nom run --watch memcached            see what it earns
  nom run --watch --prices network_out=1@0s,10@60s memcached
  nom run -d --provider localhost:7070 memcached
  nom run /usr/bin/memcached -u nobody    a Linux program as it is, with what it needs
  nom run --root /srv/debian /usr/sbin/nginx    the same, with a whole tree of files
  nom run --watch --utility apps/contracts/penalty.toml /usr/bin/memcached -u nobody    one that earns
  nom run redis:7                      what a container image of a registry starts
  nom run --oci redis.tar:7            the same, of a file
  nom run -v ./data:/data redis:7      with a directory that it writes to (mkdir data first)
  nom run --gdb hello                  wait for a debugger
  nom run hello.img                    an image that `nom build` wrote")]
pub struct Run {
    /// Application in `apps/`, path of an app.toml or bundle.toml, an image of `nom build`, the path of a
    /// Linux program, or a container image of a registry, with its tag.
    #[arg(required_unless_present = "oci")]
    pub app: Option<String>,
    /// Where a Linux program's files come from.
    #[command(flatten)]
    pub linux: crate::linux::RootOptions,
    /// What its users pay.
    #[command(flatten)]
    pub contract: crate::contract::ContractOptions,
    /// Arguments of the (first) application, in place of those in its manifest; behind a Linux program or a
    /// container image all words are its own, with `--` or without.
    #[arg(last = true)]
    pub arguments: Vec<String>,
    /// Publish a port of the machine at a port of the host, of TCP unless it says `/udp`, on all addresses of
    /// the host unless ADDR is given; may be repeated.
    #[arg(short = 'p', long = "publish", value_name = "[ADDR:]HOST:GUEST[/udp]")]
    pub publish: Vec<Port>,
    /// Lend a Linux program a directory, or a disk (a file with an ext4; as root), for reading and writing,
    /// or with `:ro` for reading; give another application a copy of a directory's files, in place of those
    /// in its manifest.
    #[arg(short = 'v', long = "volume", value_name = "DIR:/PATH[:ro]")]
    pub files: Vec<Volume>,
    /// Number of processors, a whole one up to 64; with --host, how many threads may serve. A Linux program
    /// computes on all of them, and makes its system calls on the first.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u32>(1..=64))]
    pub cpus: u32,
    /// Memory of the machine, such as 512M or 2G (powers of 1024) [default: what the manifests' applications
    /// may hold and 32M, at least 64M; for a Linux program 256M and what its files take].
    #[arg(short = 'm', long, value_name = "SIZE")]
    pub memory: Option<Memory>,
    /// Take all memory from this computer before the machine starts, so that a service never waits for
    /// memory that it touches for the first time; otherwise it is taken as it is touched.
    #[arg(long)]
    pub preallocate: bool,
    /// Run in the background and print the machine's name.
    #[arg(short = 'd', long)]
    pub detach: bool,
    /// Remove the machine's record and log when it has ended.
    #[arg(long = "rm", conflicts_with = "restart")]
    pub remove: bool,
    /// With -d: start it again when it has ended by itself, after 0.1 s and then ever longer waits, up to a
    /// minute.
    #[arg(long, requires = "detach", value_name = restart::NAMES, default_value_t = Policy::No)]
    pub restart: Policy,
    /// Variables of its environment.
    #[command(flatten)]
    pub variables: crate::variables::Variables,
    /// Name of the machine; otherwise the application's with a number.
    #[arg(long)]
    pub name: Option<String>,
    /// Wait for a debugger before the first instruction.
    #[arg(long)]
    pub gdb: bool,
    /// Chipset.
    #[arg(long, value_name = "q35|microvm", default_value_t = MachineKind::Q35)]
    pub machine: MachineKind,
    /// Who executes guest instructions; `auto` probes.
    #[arg(long, value_enum, default_value_t = AcceleratorChoice::Auto)]
    pub accel: AcceleratorChoice,
    /// Least important messages of the kernel to show.
    #[arg(long, value_enum, default_value_t = LogLevel::Warn)]
    pub log: LogLevel,
    /// What its network device is connected to.
    #[arg(long, value_enum, default_value_t = NetworkChoice::User)]
    pub network: NetworkChoice,
    /// With --network bridge: the machine's address; otherwise the lowest that is free.
    #[arg(long, value_name = "ADDRESS")]
    pub address: Option<Ipv4Addr>,
    /// Where the (first) application finds its address: `dhcp`, `auto` (IPv6 routers) or ADDRESS/PREFIX with
    /// the router's address behind it, and commas between them; otherwise its manifest's, or the network's.
    #[arg(long, value_name = "dhcp|auto|ADDRESS/PREFIX[,ROUTER]", conflicts_with = "address")]
    pub ip: Option<String>,
    /// Run as a process of this computer, with no machine; on a TAP device in a network namespace of its own
    /// (as root) if it has a network, with a queue for each of --cpus.
    #[arg(long, conflicts_with_all = [
        "publish", "memory", "preallocate", "detach", "name", "gdb", "machine", "accel", "log", "network",
        "iommu", "devices", "json", "provider", "prices", "watch", "restart", "environment", "env_file",
        "address", "charge_by", "ip", "root", "include", "oci", "entrypoint", "user", "workdir",
        "stop_signal", "remove",
    ])]
    pub host: bool,
    /// With --host: by an XDP socket at one end of a virtual Ethernet pair, in place of a TAP device: many
    /// frames leave with one system call.
    #[arg(long, requires = "host", conflicts_with = "netns")]
    pub xdp: bool,
    /// With --host: use the TAP device `tap0` of this network namespace; `ip` and `tap` of the environment
    /// say another address and device, or `xdp` one that is used by XDP.
    #[arg(long, value_name = "NAME", requires = "host")]
    pub netns: Option<String>,
    /// Take prices from this provider, and report what is earned to it.
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "prices")]
    pub provider: Option<ProviderAddress>,
    /// Who the machine is there.
    #[command(flatten)]
    pub credentials: crate::credentials::Options,
    /// Be the provider itself: prices by resource, and when they begin to hold, such as
    /// `network_out=1@0s,10@60s; core=0.01`: dollars for a Gbit (`network_out`), a core's second (`core`), a
    /// GiB's second (`memory`).
    #[arg(long, value_name = "SCHEDULE", conflicts_with = "detach", value_parser = Source::schedule)]
    pub prices: Option<Source>,
    /// Show prices, working point and profit while it runs, at 1 $/Gbit unless prices are given; `q` ends
    /// the machine.
    #[arg(long, conflicts_with_all = ["detach", "gdb"])]
    pub watch: bool,
    /// DMA remapping unit.
    #[arg(long, value_name = "none|virtio|intel", default_value_t = Iommu::None)]
    pub iommu: Iommu,
    /// One more device, as QEMU's -device takes it (for developers).
    #[arg(long = "device", value_name = "DEVICE")]
    pub devices: Vec<String>,
    /// With -d: print the machine as JSON.
    #[arg(long, requires = "detach")]
    pub json: bool,
    /// What `docker run -it` has, and a machine has not.
    #[arg(short, long, hide = true)]
    pub interactive: bool,
    /// The same.
    #[arg(short, long, hide = true)]
    pub tty: bool,
    /// This is the process that attends to a machine in the background.
    #[arg(long, hide = true)]
    pub supervisor: bool,
    /// The machines of `nom up` that this is one of.
    #[arg(long, hide = true, value_name = "JSON")]
    pub group: Option<Group>,
    /// Where the system calls of a Linux program are noted.
    #[arg(skip)]
    pub trace: Option<Rc<Trace>>,
}

impl Run {
    /// What people call that which runs.
    pub fn label(&self) -> &str {
        self.linux.label(&self.app)
    }
}

/// Values of `--accel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AcceleratorChoice {
    /// KVM if it really works here, else TCG.
    Auto,
    /// The processor itself.
    Kvm,
    /// QEMU's translator.
    Tcg,
}

impl AcceleratorChoice {
    /// The accelerator, if it was chosen by hand.
    pub fn fixed(self) -> Option<Accelerator> {
        match self {
            AcceleratorChoice::Auto => None,
            AcceleratorChoice::Kvm => Some(Accelerator::Kvm),
            AcceleratorChoice::Tcg => Some(Accelerator::Tcg),
        }
    }
}

/// Values of `--network`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NetworkChoice {
    /// QEMU's own network, for everybody: its ports are published at ports of the host.
    User,
    /// A TAP device in a network namespace of its own (as root): faster, and every port is reached there.
    Tap,
    /// A TAP device on the bridge `nombr0` (as root): as fast, reached from this computer and from the other
    /// machines there; ports are published as with `user`. It has no way to other networks.
    Bridge,
}

/// Values of `--log`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// What ends the machine or an application.
    Error,
    /// What is amiss.
    Warn,
    /// What happens.
    Info,
    /// Everything.
    Debug,
}

/// `nom ps`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  nom ps\n  nom ps -a --json")]
pub struct Ps {
    /// Show ended machines too.
    #[arg(short, long)]
    pub all: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `nom build`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  nom build hello                    writes hello.img
  nom build hello -o /tmp/h.img --json
  nom build /usr/bin/redis-server --port 6380    a Linux program with its arguments
  nom build --no-symbols hello       smaller; backtraces show numbers only")]
pub struct Build {
    /// Application in `apps/`, path of an app.toml or bundle.toml, the path of a Linux program, or a
    /// container image of a registry, with its tag.
    #[arg(required_unless_present = "oci")]
    pub app: Option<String>,
    /// Where a Linux program's files come from.
    #[command(flatten)]
    pub linux: crate::linux::RootOptions,
    /// What its users pay.
    #[command(flatten)]
    pub contract: crate::contract::ContractOptions,
    /// Arguments of the (first) application, in place of those in its manifest; behind a Linux program or a
    /// container image all words are its own, with `--` or without.
    #[arg(last = true)]
    pub arguments: Vec<String>,
    /// File to write.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Give the application the files of a directory, in place of those in its manifest.
    #[arg(short = 'v', long = "volume", value_name = "DIR:/PATH[:ro]")]
    pub files: Vec<Volume>,
    /// Leave the symbols behind readable backtraces out.
    #[arg(long)]
    pub no_symbols: bool,
    /// Print the size of each part as JSON.
    #[arg(long)]
    pub json: bool,
}

/// `nom demo`.
#[derive(Debug, Args)]
#[command(
    after_help = "Many clients are served while data is cheap, then a single one while it is dear, by Linux
and by nom, whose users pay by one of three utility functions. docs/demo.md says how it is measured.

Examples:
  nom demo
  nom demo --functions penalty --seconds 5
  nom demo --applications memcached,nhttpd,netpipe --seconds 5 --repetitions 2
  nom demo --applications linux-memcached --functions penalty    Debian's memcached, unmodified
  nom demo --full --out results/demo"
)]
pub struct Demo {
    /// Directory for results.json, results.csv, intervals.csv, statuses.csv, figures and report.html.
    #[arg(long, value_name = "DIR", default_value = "demo")]
    pub out: PathBuf,
    /// The paper's applications, phases of 20 seconds, three times, and five minutes of turns; about 75
    /// minutes.
    #[arg(long)]
    pub full: bool,
    /// Applications, separated by commas, of memcached, nhttpd, netpipe and linux-memcached, which is
    /// Debian's as it is; by default memcached, and with --full the first three.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub applications: Vec<String>,
    /// How often each system is run; by default once, with --full three times.
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..=100))]
    pub repetitions: Option<u32>,
    /// Run nom alone: nothing is fetched.
    #[arg(long)]
    pub without_linux: bool,
    /// How many clients are served while data is cheap.
    #[arg(long, value_name = "N", value_parser = whole::<u32>(2..=1000))]
    #[arg(default_value_t = nom_bench::demo::CONNECTIONS)]
    pub connections: u32,
    /// A machine of somebody else's that takes part: COMMAND starts it in the network namespace of a run and
    /// is told by NOM_PEER_... what it needs (docs/demo.md); may be repeated.
    #[arg(long = "peer", value_name = "NAME=COMMAND", value_parser = peer)]
    pub peers: Vec<nom_bench::demo::Peer>,
    /// Another length of every phase.
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1..=3600))]
    pub seconds: Option<u64>,
    #[command(flatten)]
    pub variant: crate::demo::Variant,
    /// Utility functions, separated by commas; by default penalty, refund and bonus.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub functions: Vec<String>,
}

/// Reads `NAME=COMMAND`.
fn peer(text: &str) -> Result<nom_bench::demo::Peer, String> {
    nom_bench::demo::Peer::parse(text).map_err(|error| error.to_string())
}

/// A command of the development tool, which has its own help.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct Delegated {
    /// Passed on; --help lists what there is.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    pub arguments: Vec<String>,
}

/// `nom doctor`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  nom doctor\n  nom doctor --json")]
pub struct Doctor {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `nom completions`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  nom completions bash > ~/.local/share/bash-completion/completions/nom")]
pub struct Completions {
    /// Shell.
    pub shell: clap_complete::Shell,
}

/// `nom symbols`, which the debugger's script calls.
#[derive(Debug, Args)]
pub struct Symbols {
    /// Machine.
    pub name: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn run(line: &str) -> Result<Run, clap::Error> {
        let words = ["nom", "run"].into_iter().chain(line.split_whitespace());
        Arguments::try_parse_from(words).map(|arguments| match arguments.command {
            Command::Run(run) => *run,
            other => panic!("`run` read as {other:?}"),
        })
    }

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn run_reads_as_docker_does() {
        let line = "-d -p 8080:80 -p 127.0.0.1:53:53/udp --cpus 4 -m 1g --name web apps/web -- -v x";
        let run = run(line).expect("legal");
        assert!(run.detach && !run.preallocate);
        assert_eq!(
            (run.cpus, run.memory.expect("given").to_string().as_str(), run.app.as_deref()),
            (4, "1G", Some("apps/web"))
        );
        assert_eq!(run.name.as_deref(), Some("web"));
        assert_eq!(run.arguments, ["-v", "x"]);
        let ports: Vec<String> = run.publish.iter().map(Port::to_string).collect();
        assert_eq!(ports, ["8080:80", "127.0.0.1:53:53/udp"]);
    }

    #[test]
    fn memory_is_taken_at_the_start_only_when_asked_for() {
        for (line, preallocate) in [("hello", false), ("--preallocate hello", true)] {
            assert_eq!(run(line).expect("legal").preallocate, preallocate, "{line}");
        }
    }

    #[test]
    fn a_wrong_number_is_told_what_was_expected() {
        for (line, option, expected) in [
            ("run --cpus many hello", "--cpus", "from 1 to 64"),
            ("run --cpus 65 hello", "--cpus", "from 1 to 64"),
            ("run --cpus 0 hello", "--cpus", "from 1 to 64"),
            ("run --memory much hello", "--memory", "a size such as 64M or 2G"),
            ("run -p a:b hello", "--publish", "[ADDRESS:]HOST:GUEST"),
            ("stop --time soon web", "--time", "from 0 to 86400"),
            ("bench boot --repetitions 0", "--repetitions", "from 1 to 1000"),
            ("bench serve --seconds x", "--seconds", "from 1 to 3600"),
            ("bench table --longest 1ms", "--longest", "from 0 to 10000"),
            ("demo --repetitions few", "--repetitions", "from 1 to 100"),
            ("demo --seconds 1.5", "--seconds", "from 1 to 3600"),
            ("provider --listen 80", "--listen", "ADDRESS:PORT, such as 127.0.0.1:7070"),
        ] {
            let words = ["nom"].into_iter().chain(line.split_whitespace());
            let error = Arguments::try_parse_from(words).expect_err(line).to_string();
            assert!(error.contains(option) && error.contains(expected), "`{line}` says: {error}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (line, named) in [
            ("--memory 64X hello", "64X"),
            ("-p 80 hello", "[ADDRESS:]HOST:GUEST"),
            ("-p 1.2.3:80:80 hello", "1.2.3:80:80"),
            ("--network tun hello", "user, tap"),
            ("--machine pc hello", "q35, microvm"),
            ("--json hello", "--detach"),
            ("--host --memory 1G hello", "--memory"),
            ("--host --preallocate hello", "--preallocate"),
            ("--preallocate=1G hello", "--preallocate"),
            ("--host --ip dhcp hello", "--ip"),
            ("--address 10.110.111.9 --ip dhcp hello", "--ip"),
            ("--netns blue hello", "--host"),
            ("--prices gold=1 hello", "gold"),
            ("--prices network_out=-1 hello", "-1"),
            ("--prices core=1 --provider localhost:80 hello", "--provider"),
            ("--prices core=1 -d hello", "--detach"),
            ("--provider localhost hello", "HOST:PORT"),
            ("--watch -d hello", "--detach"),
            ("--oci layout --root / /bin/sh", "--root"),
            ("--host --oci layout", "--oci"),
            ("", "APP"),
        ] {
            let error = run(line).expect_err(line).to_string();
            assert!(error.contains(named), "`{line}` says: {error}");
        }
    }
}
