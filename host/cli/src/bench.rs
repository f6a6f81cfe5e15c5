//! `nom bench`.

use crate::attend::watch_signals;
use crate::demo::interruptible;
use crate::numbers::whole;
use crate::produce::print_outcome;
use anyhow::Result;
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use nom_bench::bulk::offloads::Offloads;
use nom_bench::wire::conditions::Conditions;
use nom_bench::{boot, bulk, demo, floods, grid, serve, unmodified, wire};
use nom_build::Project;
use std::path::PathBuf;
use std::time::Duration;

/// Benches.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// From the kernel's first instruction to the application's, system calls and memory, beside Linux.
    Boot(Boot),
    /// Many bytes to and from a machine, beside Linux (as root).
    Bulk(Bulk),
    /// What floods leave of an honest client's rate (as root).
    Floods(Floods),
    /// Whether tenants of one server get their shares, and what that costs (as root).
    Grid(Grid),
    /// Debian's own programs, unchanged, beside Linux (as root).
    Linux(Linux),
    /// Throughput and latency of three servers, beside Linux (as root).
    Serve(Serve),
    /// An application's responses at each batching delay, for the field `responses` of its manifest.
    Table(Table),
    /// Goodput over bad paths, beside Linux (as root).
    Wire(Wire),
}

/// `nom bench boot`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  nom bench boot
  nom bench boot --out results/boot --repetitions 30")]
pub struct Boot {
    /// Directory for results.json, results.csv, figures and report.html.
    #[arg(long, value_name = "DIR", default_value = "bench-boot")]
    out: PathBuf,
    /// How often each timed run is repeated.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = whole::<u32>(1..=1000))]
    repetitions: u32,
}

/// `nom bench serve`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  nom bench serve
  nom bench serve --counted --seconds 1 --only memcached --only packet-api
  nom bench serve --seconds 5 --only memcached --only packet-api")]
pub struct Serve {
    /// Directory for results.json, results.csv, figures and report.html.
    #[arg(long, value_name = "DIR", default_value = "bench-serve")]
    out: PathBuf,
    /// How often each timed run is repeated.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = whole::<u32>(1..=1000))]
    repetitions: u32,
    /// How long each load lasts.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = whole::<u64>(1..=3600))]
    seconds: u64,
    /// Measure this service only, of memcached, packet-api, http, netpipe and
    /// netpipe-both-ways; can be given several times.
    #[arg(long, value_name = "SERVICE")]
    only: Vec<String>,
    /// Count only what requests to nom cost, and where: instructions by part of
    /// the system, locked instructions, exits. Takes a minute.
    #[arg(long)]
    counted: bool,
}

/// `nom bench table`.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  nom bench table --application memcached --out apps/memcached/responses.toml")]
pub struct Table {
    /// File to write.
    #[arg(long, value_name = "FILE", default_value = "responses.toml")]
    out: PathBuf,
    /// How long each load lasts.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = whole::<u64>(1..=3600))]
    seconds: u64,
    /// The application: memcached, nhttpd or netpipe.
    #[arg(long, value_name = "NAME", default_value = "memcached")]
    application: String,
    /// Measure up to this batching delay, in microseconds.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = whole::<u32>(0..=10_000))]
    longest: u32,
}

/// `nom bench wire`.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  nom bench wire --quick --out results/wire")]
pub struct Wire {
    /// Directory for results.json, results.csv and report.html.
    #[arg(long, value_name = "DIR", default_value = "bench-wire")]
    out: PathBuf,
    /// How often each point is measured.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = whole::<u32>(1..=1000))]
    repetitions: u32,
    /// How long each load lasts.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = whole::<u64>(1..=3600))]
    seconds: u64,
    /// Measure a few points only.
    #[arg(long)]
    quick: bool,
    /// Measure this point only, such as "50 ms, 1% lost"; can be given several times.
    #[arg(long, value_name = "POINT", conflicts_with = "quick")]
    only: Vec<String>,
}

/// `nom bench bulk`.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  nom bench bulk --only all --only none --out results/bulk")]
pub struct Bulk {
    /// Directory for results.json, results.csv and report.html.
    #[arg(long, value_name = "DIR", default_value = "bench-bulk")]
    out: PathBuf,
    /// How often each system is started and loaded.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = whole::<u32>(1..=1000))]
    repetitions: u32,
    /// How long each load lasts.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = whole::<u64>(1..=3600))]
    seconds: u64,
    /// What the network device offers, of all, send, receive and none; can be given several times.
    #[arg(long, value_name = "OFFLOADS")]
    only: Vec<String>,
}

/// `nom bench floods`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  nom bench floods --turns 9 --seconds 1 --out results/floods
  nom bench floods --only slow")]
pub struct Floods {
    /// Directory for results.json, results.csv and report.html.
    #[arg(long, value_name = "DIR", default_value = "bench-floods")]
    out: PathBuf,
    /// How often each flood comes, to the machine and to nobody.
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = whole::<u32>(1..=1000))]
    turns: u32,
    /// How long each time.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u64>(1..=3600))]
    seconds: u64,
    /// Frames a second.
    #[arg(long, value_name = "FRAMES", default_value_t = 2000, value_parser = whole::<u32>(1..=1_000_000))]
    rate: u32,
    /// This flood only; can be given several times.
    #[arg(long, value_name = "FLOOD", value_parser = PossibleValuesParser::new(floods::KINDS))]
    only: Vec<String>,
}

/// `nom bench grid`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  nom bench grid --turns 3 --seconds 5 --out results/grid
  nom bench grid --only counts")]
pub struct Grid {
    /// Directory for results.json, results.csv, figures and report.html.
    #[arg(long, value_name = "DIR", default_value = "bench-grid")]
    out: PathBuf,
    /// How often everything is measured that takes time.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = whole::<u32>(1..=1000))]
    turns: u32,
    /// How long each time.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = whole::<u64>(1..=3600))]
    seconds: u64,
    /// Do this only; can be given several times.
    #[arg(long, value_name = "EXPERIMENT", value_parser = PossibleValuesParser::new(grid::EXPERIMENTS))]
    only: Vec<String>,
}

/// `nom bench linux`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  nom bench linux
  nom bench linux --only primitives --repetitions 1 --out results/linux")]
pub struct Linux {
    /// Directory for results.json, results.csv, figures and report.html.
    #[arg(long, value_name = "DIR", default_value = "bench-linux")]
    out: PathBuf,
    /// How often each system is started and loaded.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = whole::<u32>(1..=1000))]
    repetitions: u32,
    /// How long each load lasts.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = whole::<u64>(1..=3600))]
    seconds: u64,
    /// Measure this only, of memcached, redis, nginx and primitives (system calls, context switches, page
    /// faults, fork and exec); can be given several times.
    #[arg(long, value_name = "PROGRAM")]
    only: Vec<String>,
}

/// `nom bench`.
///
/// # Errors
/// If this is a release, or the bench fails.
pub fn bench(options: &Bench) -> Result<u8> {
    let project = Project::find_checkout("`nom bench`")?;
    let outcome = match options {
        Bench::Boot(Boot { out, repetitions }) => {
            boot::run(&boot::Options { out: out.clone(), project, repetitions: *repetitions })?
        }
        Bench::Serve(options) => serve::run(&serve::Options {
            out: options.out.clone(),
            project,
            repetitions: options.repetitions,
            duration: Duration::from_secs(options.seconds),
            services: options.only.clone(),
            extent: if options.counted { serve::Extent::Counts } else { serve::Extent::Whole },
        })?,
        Bench::Wire(options) => wire::run(&wire::Options {
            out: options.out.clone(),
            project,
            repetitions: options.repetitions,
            duration: Duration::from_secs(options.seconds),
            points: points(options)?,
        })?,
        Bench::Bulk(options) => bulk::run(&bulk::Options {
            out: options.out.clone(),
            project,
            repetitions: options.repetitions,
            duration: Duration::from_secs(options.seconds),
            offloads: Offloads::named(&options.only)?,
        })?,
        Bench::Floods(options) => floods::run(&floods::Options {
            out: options.out.clone(),
            project,
            turns: options.turns,
            duration: Duration::from_secs(options.seconds),
            rate: options.rate,
            kinds: options.only.clone(),
        })?,
        Bench::Linux(options) => unmodified::run(&unmodified::Options {
            out: options.out.clone(),
            project,
            repetitions: options.repetitions,
            duration: Duration::from_secs(options.seconds),
            programs: options.only.clone(),
        })?,
        Bench::Grid(options) => grid::run(&grid::Options {
            out: options.out.clone(),
            project,
            turns: options.turns,
            duration: Duration::from_secs(options.seconds),
            only: options.only.clone(),
        })?,
        Bench::Table(options) => return table(options, project),
    };
    print_outcome(&outcome);
    Ok(0)
}

fn points(options: &Wire) -> Result<Vec<Conditions>> {
    match &options.only[..] {
        [] if options.quick => Ok(Conditions::few()),
        names => Conditions::named(names),
    }
}

fn table(options: &Table, project: Project) -> Result<u8> {
    let made = demo::table(&demo::TableOptions {
        project,
        application: options.application.clone(),
        longest_us: options.longest,
        phase: Duration::from_secs(options.seconds),
        out: options.out.clone(),
        signal: watch_signals()?,
    });
    interruptible(made.map(|notes| {
        notes.iter().for_each(|note| eprintln!("note: {note}"));
        println!("{}", options.out.display());
    }))
}

#[cfg(test)]
mod tests {
    use crate::arguments::Arguments;
    use clap::Parser;

    /// The help that `line` ends with.
    fn help(line: &str) -> String {
        Arguments::try_parse_from(line.split(' ')).expect_err("help is no command").to_string()
    }

    #[test]
    fn each_bench_has_help_of_its_own() {
        for (bench, has, lacks) in [
            ("boot", "--repetitions", "--seconds"),
            ("serve", "--only", "--longest"),
            ("table", "--longest", "--repetitions"),
            ("wire", "--quick", "--longest"),
            ("bulk", "--only", "--longest"),
            ("floods", "--turns", "--repetitions"),
            ("grid", "--turns", "--repetitions"),
            ("linux", "--only", "--turns"),
        ] {
            let help = help(&format!("nom bench {bench} --help"));
            assert!(help.contains(has) && !help.contains(lacks) && help.contains("Example"), "{help}");
        }
        assert!(
            ["boot", "bulk", "floods", "grid", "linux", "serve", "table", "wire"]
                .iter()
                .all(|name| help("nom bench --help").contains(name))
        );
        let error = help("nom bench boto");
        assert!(error.contains("boto") && error.contains("boot"), "{error}");
    }
}
