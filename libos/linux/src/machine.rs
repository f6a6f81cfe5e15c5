//! PageSource of the machine.

use crate::memory::PageSource;
use nom_sys::Protection;
use nom_sys::program::memory;

/// Those that the kernel grants.
#[derive(Clone, Copy, Debug, Default)]
pub struct Granted;

impl PageSource for Granted {
    fn add(&self, address: u64, count: u64) -> Option<(u64, u64)> {
        memory::PageRun::add(address, count).ok().map(|pages| (pages.frame, pages.count))
    }

    fn protect(&self, address: u64, count: u64, protection: Protection) {
        pages(address, count, 0).protect(protection).expect("they are mapped");
    }

    fn remove(&self, address: u64, count: u64, frame: u64) {
        pages(address, count, frame).remove().expect("they are mapped");
    }

    fn relocate(&self, address: u64, count: u64, frame: u64, to: u64, protection: Protection) -> bool {
        pages(address, count, frame).relocate(to, protection).is_ok()
    }

    fn read(&self, address: u64, bytes: &mut [u8]) {
        memory::read(address, bytes);
    }

    fn write(&self, address: u64, bytes: &[u8]) {
        memory::write(address, bytes);
    }
}

fn pages(address: u64, count: u64, frame: u64) -> memory::PageRun {
    memory::PageRun { address, frame, count }
}
