//! Layouts of all that kernel, loader, bundle and applications share, as of one version of the contract.
//!
//! A structure that changes without [`nom_abi::VERSION`] would be misread by whoever was built before.

use nom_abi::{board, image, priced, prices, start, upcall};
use std::fmt::Write;

/// The version that has these layouts.
const VERSION: u32 = 3;
/// What to do where a layout is another.
const ADVICE: &str = "raise `nom_abi::VERSION`, and write version and layout into this table; \
    CHANGELOG.md says which kind of change it is";

/// A structure as it is, and as it is written down.
struct Layout {
    name: &'static str,
    present: String,
    pinned: String,
}

/// What can be seen of a layout from the outside.
fn describe(bytes: usize, align: usize, fields: &[(&str, usize)]) -> String {
    let mut text = format!("{bytes} bytes, aligned to {align}:");
    for (field, offset) in fields {
        let _ = write!(text, " {field} at {offset},");
    }
    text
}

/// Structures with size, alignment, and the offset of each field, none left out.
macro_rules! layouts {
    ($($module:ident::$name:ident: $bytes:literal, $align:literal { $($field:ident $at:literal),+ })+) => {
        fn layouts() -> Vec<Layout> {
            use std::mem::offset_of;
            vec![$({
                type Shared = $module::$name;
                // A field that is missing in the table does not compile.
                let _ = |$module::$name { $($field: _),+ }: &Shared| {};
                let fields = [$((stringify!($field), offset_of!(Shared, $field))),+];
                Layout {
                    name: concat!(stringify!($module), "::", stringify!($name)),
                    present: describe(size_of::<Shared>(), align_of::<Shared>(), &fields),
                    pinned: describe($bytes, $align, &[$((stringify!($field), $at)),+]),
                }
            }),+]
        }
    };
}

layouts! {
    board::Board: 28672, 4096 {
        header 0, clock 64, machine 128, cores 192, applications 4288, devices 12480, prices 24576
    }
    board::Header: 64, 64 { magic 0, version 8, bytes 12 }
    board::Clock: 64, 64 {
        sequence 0, source 4, tsc_base 8, multiplier 16, tsc_hz 24, first_user_tsc 32, unix_start 40
    }
    board::Machine: 64, 64 {
        sequence 0, cores 4, dma_protection 8, colours 12, frames_total 16, frames_free 24,
        frames_kernel 32, timer_interrupts 40, shutdown_ns 48, unmitigated 56
    }
    board::Core: 64, 64 { sequence 0, online 4, apic_id 8, running 12, holders 16, idle_cycles 24 }
    board::Application: 128, 64 {
        sequence 0, state 4, name 8, status 40, weight 44, cores_max 48, frames_max 56, starts 64
    }
    board::Usage: 4096, 4096 { cores 0, preemptions 4, frames 8, cycles 16, refused 24 }
    board::Device: 128, 64 {
        sequence 0, present 4, address 8, vendor 12, device 16, class 20, owner 24, vectors 28,
        bar_bytes 32, changes 80, dma_blocked 84
    }
    prices::Price: 32, 8 { resource 0, source 4, dollars 8, since_ns 16, confirmed_ns 24 }
    prices::Prices: 4096, 4096 { sequence 0, count 4, revision 8, published_ns 16, entries 24 }
    start::Start: 1664, 8 {
        magic 0, version 8, application 12, board 16, image_base 24, image_bytes 32, stack_base 40,
        stack_bytes 48, frames_max 56, cores_max 64, channels 68, flags 72, reserved 76, arguments 80,
        environment 88, seed 96, channel 128
    }
    start::Strings: 8, 4 { offset 0, bytes 4 }
    start::Channel: 24, 8 { address 0, bytes 8, peer 16, end 20 }
    upcall::Events: 48, 8 {
        pending 0, fault_address 8, fault_code 16, interrupts 24, messages 32, revoke_deadline_ns 40
    }
    upcall::Registers: 144, 8 {
        rax 0, rbx 8, rcx 16, rdx 24, rsi 32, rdi 40, rbp 48, rsp 56, r8 64, r9 72, r10 80, r11 88, r12 96,
        r13 104, r14 112, r15 120, rip 128, rflags 136
    }
    upcall::UpcallFrame: 192, 8 { events 0, registers 48 }
    image::Payload: 48, 4 { parts 0, entry 32, relocations 36, reserved 40 }
    image::PackedPart: 16, 4 { stream 0, target 8 }
    image::Extent: 8, 4 { start 0, bytes 4 }
    image::Run: 8, 4 { offset 0, count 4 }
    image::Bundle: 40, 8 { magic 0, version 8, bytes 12, applications 16, channels 24, symbols 32 }
    image::ApplicationRecord: 128, 8 {
        name 0, entry 32, image_bytes 40, stack_bytes 48, frames_max 56, manages 64, cores_max 72,
        weight 76, flags 80, calls 84, segments 88, devices 96, arguments 104, environment 112,
        symbols 120
    }
    image::SegmentRecord: 32, 8 {
        address 0, memory_bytes 8, file_offset 16, file_bytes 20, protection 24, reserved 28
    }
    image::DeviceSelector: 8, 4 { vendor 0, device 2, class 4 }
    image::ChannelRecord: 16, 8 { ends 0, bytes 8 }
    image::SymbolTable: 8, 4 { symbols 0, names 4 }
    image::SymbolRecord: 6, 1 { start 0, name 4 }
    priced::Announcement: 24, 8 { kind 0, revision 8, published_ns 16 }
    priced::Report: 128, 8 {
        kind 0, at_ns 8, window_ns 16, batching_delay_us 24, polls 32, requests 40, sent_bytes 48,
        received_bytes 56, latency_mean_ns 64, latency_jitter_ns 72, latency_p99_ns 80, price_revision 88,
        price_network_out 96, revenue_per_second 104, cost_per_second 112, profit 120
    }
    priced::ActivityReport: 160, 8 {
        kind 0, at_ns 8, number 16, count 20, name 24, core_ns 88, requests 96, latency_ns 104,
        received_bytes 112, sent_bytes 120, connections 128, memory_bytes 136, cost 144, profit 152
    }
    priced::Solvency: 40, 8 {
        state 0, objective_ns 8, soonest_p99_ns 16, soonest_delay_us 24, clients_max 32
    }
}

#[test]
fn a_layout_changes_only_with_the_version() {
    assert_eq!(nom_abi::VERSION, VERSION, "another version has other layouts: {ADVICE}");
    for Layout { name, present, pinned } in layouts() {
        assert_eq!(present, pinned, "`{name}` is not as in version {VERSION}: {ADVICE}");
    }
}

/// Counted in the sources, so that none is forgotten.
#[test]
fn every_shared_structure_is_written_down() {
    let sources =
        std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).expect("the crate's sources");
    let shared = |source: std::io::Result<std::fs::DirEntry>| {
        let text = std::fs::read_to_string(source.expect("a file").path()).expect("Rust is UTF-8");
        text.lines().filter(|line| line.starts_with("#[repr(C")).count()
    };
    assert_eq!(sources.map(shared).sum::<usize>(), layouts().len(), "structures with `repr(C)`: {ADVICE}");
}
