//! Watches the prices as a server would: waits for announcements, reads the board, reports to `priced`.
//!
//! Prints each change; ends when outgoing data costs the price that its argument names.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use nom_app::prices::{self, PricedResource};
use nom_app::{args, events, ipc, println, time};
use nom_guest_tests::{Check, Failure, expect, run};
use nom_sys::abi::priced::{Announcement, Report};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

nom_app::main!(main);

fn main() -> u8 {
    run(&[("priced-watch", watch)])
}

fn watch() -> Check {
    let last: f64 = args().next().and_then(|text| text.parse().ok()).ok_or("expected the last price")?;
    let channel = nom_app::channels::all().next().ok_or("no channel to priced")?;
    let (mut producer, mut consumer) = ipc::open(channel.words, channel.end)?;
    let mut buffer = [0; size_of::<Announcement>()];
    loop {
        let Some(length) = consumer.pop(&mut buffer)? else {
            if consumer.prepare_wait() {
                events::wait(None);
            }
            continue;
        };
        let announcement =
            Announcement::read_from_bytes(&buffer[..length]).map_err(|_| "a strange message")?;
        expect("the kind of message", announcement.kind, Announcement::KIND)?;
        let price = show(&announcement)?;
        let report = Report {
            kind: Report::KIND,
            at_ns: time::now_ns(),
            price_revision: announcement.revision,
            price_network_out: price.to_bits(),
            ..Report::new_zeroed()
        };
        producer.push(report.as_bytes())?;
        if producer.take_notify_request() {
            channel.notify()?;
        }
        if price == last {
            return Ok(());
        }
    }
}

/// Prints the prices that were announced; returns that of outgoing data.
fn show(announcement: &Announcement) -> Result<f64, Failure> {
    let noticed_ns = time::now_ns() - announcement.published_ns;
    let list = prices::read().ok_or("priced is done writing")?;
    let out = list.get(PricedResource::NetworkOut).ok_or("no price of outgoing data")?;
    println!(
        "watch revision={} network_out={} of {} prices, {} ms old, noticed after {noticed_ns} ns",
        list.revision,
        out.dollars,
        list.iter().count(),
        out.age_ns(time::now_ns()) / 1_000_000,
    );
    Ok(out.dollars)
}
