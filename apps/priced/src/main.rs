//! Prices for the applications of this machine (nom, VEE'16, section 3.7).
//!
//! Asks the provider, or a schedule, puts prices on the bulletin board, tells the applications that have a
//! channel, and passes on what they report. What it says and when is decided in `nom-priced-core`.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

mod peers;
mod wires;

use nom_app::alloc::boxed::Box;
use nom_app::alloc::format;
use nom_app::{prices, println, seed, time, var};
use nom_priced_core::{Daemon, Source};
use peers::Peers;
use wires::Wires;

nom_app::main!(main);

/// Most characters of a machine's name.
const NAME_MAX: usize = 128;

fn main() -> Result<u8, Box<dyn core::error::Error>> {
    let text =
        var("provider").ok_or("the environment has no `provider`: expected ADDRESS:PORT or fixed:PRICES")?;
    let source = Source::parse(text).map_err(|problem| format!("the environment's provider: {problem}"))?;
    let machine = var("machine").unwrap_or("nom");
    if machine.is_empty() || machine.chars().count() > NAME_MAX || machine.chars().any(char::is_control) {
        return Err(
            format!("the environment's machine={machine}: expected 1 to {NAME_MAX} characters").into()
        );
    }
    let key = var("key");
    if key.is_some_and(|key| !key.bytes().all(|byte| byte.is_ascii_graphic())) {
        return Err("the environment's key has characters that no key has".into());
    }
    let mut wires = Wires::new(&source)?;
    let (chance, _) = seed().split_first_chunk().expect("32 bytes");
    let mut daemon = Daemon::new(source, key, u64::from_le_bytes(*chance));
    let mut peers = Peers::open(machine, &mut daemon);
    println!("priced: prices for {} applications from {text}", peers.len());
    loop {
        turn(&mut daemon, &mut wires, &mut peers)?;
    }
}

/// Does all there is to do, and sleeps until there is more.
fn turn(
    daemon: &mut Daemon,
    wires: &mut Wires,
    peers: &mut Peers,
) -> Result<(), Box<dyn core::error::Error>> {
    let now_ns = time::now_ns();
    wires.poll(now_ns, daemon);
    // Prices first: whatever else there is, the applications wait for them.
    if let Some(publication) = daemon.publication() {
        prices::publish(&publication.list).map_err(|_| "app.toml does not say `publishes_prices = true`")?;
        if let Some(announcement) = publication.announcement {
            peers.announce(&announcement);
        }
    }
    peers.listen(now_ns, daemon);
    daemon.tick(now_ns);
    while let Some(line) = daemon.line() {
        println!("priced: {line}");
    }
    if !wires.obey(now_ns, daemon) && !daemon.has_publication() && peers.may_sleep() {
        wires.sleep(daemon.due_ns());
    }
    Ok(())
}
