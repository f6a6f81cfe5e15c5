//! `nom`: what people type.
#![forbid(unsafe_code)]

mod address;
mod administer;
mod arguments;
mod attend;
mod background;
mod bench;
mod clean;
mod contract;
mod credentials;
mod debugger;
mod demo;
mod doctor;
mod earnings;
mod farewell;
mod generate;
mod grid;
mod launch;
mod linux;
mod logs;
mod machines;
mod manual;
mod metering;
mod mounts;
mod network;
mod new;
mod numbers;
mod port_holder;
mod ports;
mod prices;
mod process;
mod produce;
mod provider;
mod reach;
mod registry;
mod replace;
mod restart;
mod run;
mod start;
mod stats;
mod stop;
mod store;
mod strace;
mod supervise;
mod supply;
mod times;
mod top;
mod trailing;
mod up;
mod variables;
mod watch;

use anyhow::{Context, Result};
use arguments::{Arguments, Command};
use clap::{CommandFactory, Parser};
use nom_build::Project;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words = trailing::separated(std::env::args_os().collect());
    let command = Arguments::parse_from(words).command;
    if !command.has_connections() {
        sigpipe::reset(); // `nom logs web | head` ends quietly.
    }
    match execute(&command) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            // Not `eprintln`, which panics where the terminal was closed.
            let _ = writeln!(std::io::stderr(), "nom: {error:#}");
            ExitCode::from(nom_vmm::STATUS_FAILED)
        }
    }
}

fn execute(command: &Command) -> Result<u8> {
    match command {
        Command::Run(options) if options.host => process::run(options),
        Command::Run(options) => run::run(options),
        Command::Strace(options) => strace::strace(options),
        Command::Ps(options) => machines::ps(options),
        Command::Logs(options) => logs::logs(options),
        Command::Inspect(options) => machines::inspect(options),
        Command::Stats(options) => stats::stats(options),
        Command::Top(options) => top::top(options),
        Command::Grid(options) => grid::grid(options),
        Command::Stop(options) => stop::stop(options),
        Command::Start(options) => start::start(options),
        Command::Restart(options) => start::restart(options),
        Command::Rm(options) => stop::remove(options),
        Command::Up(options) => up::up(options),
        Command::Down(options) => up::down(options),
        Command::Generate(options) => generate::generate(options),
        Command::Build(options) => produce::build(options),
        Command::New(options) => new::new(options),
        Command::Demo(options) => demo::demo(options),
        Command::Bench(options) => bench::bench(options),
        Command::Provider(options) => provider::provider(options),
        Command::Test(options) if new::is_own(&options.arguments) => new::test(&options.arguments),
        Command::Test(options) => match options.arguments.split_first() {
            Some((first, rest)) if first == "linux" => xtask("linux", rest),
            _ => xtask("test", &options.arguments),
        },
        Command::Sim(options) => tool("sim", SIM, &options.arguments),
        Command::Tidy(options) => xtask("tidy", &options.arguments),
        Command::Package(options) => xtask("package", &options.arguments),
        Command::Fuzz(options) => xtask("fuzz", &options.arguments),
        Command::Clean(options) => clean::clean(options),
        Command::Doctor(options) => doctor::doctor(options),
        Command::Completions(options) => {
            clap_complete::generate(options.shell, &mut Arguments::command(), "nom", &mut std::io::stdout());
            Ok(0)
        }
        Command::Manual => manual::print(Arguments::command()),
        Command::Symbols(options) => debugger::symbols(options),
    }
}

/// The simulator: its package, and the profile that it is built with.
const SIM: (&str, &str) = ("nom-sim", "sim");

/// Runs a command of the development tool.
fn xtask(command: &str, arguments: &[String]) -> Result<u8> {
    let words = std::iter::once(command.to_owned()).chain(arguments.iter().cloned());
    tool(command, ("nom-xtask", "dev"), &words.collect::<Vec<_>>())
}

/// Builds a program of the project that is no part of this one, and runs it in the caller's directory, for
/// `nom COMMAND`.
fn tool(command: &str, (package, profile): (&str, &str), arguments: &[String]) -> Result<u8> {
    let project = Project::find_checkout(&format!("`nom {command}`"))?;
    let program = project.tool(package, profile)?;
    let status = std::process::Command::new(&program).args(arguments).status();
    let status = status.with_context(|| format!("cannot run {}", program.display()))?;
    Ok(status.code().map_or(nom_vmm::STATUS_FAILED, |code| code as u8))
}
