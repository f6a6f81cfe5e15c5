//! What ring 0 looks like from ring 0, for tests: page tables, registers and descriptor tables of every
//! processor, compared with what the layout and the processor's manuals say.
//!
//! No application can see whether SMEP is on or the kernel's text is read-only, so that no guest can test it.
//! This crate is linked into a kernel of its own (`main.rs`) and never ships. What is right is written here
//! anew, not taken from `kernel/x86`, so that both would have to be wrong alike. It may be `unsafe`:
//! `docs/safety/kernel-selfcheck.md`.
#![no_std]

mod descriptors;
mod pages;
mod processor;
mod report;

use report::Report;

/// Looks at everything and says on the console, line by line, what is right and what is not. The other
/// processors must be waiting for the kernel with interrupts off.
pub fn run() {
    let map = pages::Map::read(processor::page_table_root());
    map.check(&mut Report::new("page tables"));
    let cores = map.cores();
    let snapshots = processor::snapshots(cores);
    let mut count = Report::new("processors");
    count.equal("processors that answered", snapshots.len() as u64, cores as u64);
    count.end();
    for (core, snapshot) in snapshots.iter().enumerate() {
        let mut report = Report::of_core("registers", core);
        processor::check(snapshot, &mut report);
        report.end();
        let mut report = Report::of_core("descriptors", core);
        descriptors::check(snapshot, &map, &mut report);
        report.end();
    }
}
