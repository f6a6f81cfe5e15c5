//! What is fuzzed: functions that take any bytes, and panic if something is wrong.
//!
//! `fuzz/` makes a fuzzer of each (`cargo xtask fuzz TARGET`), `corpus/TARGET/` has inputs that each reach
//! something of their own, and `tests/replay.rs` plays them all with every run of the unit tests.
//!
//! A target that only looks for panics finds little in code that has none by construction; so each has an
//! oracle: what is sent is sound, a stream that arrives is what was sent, cutting the input changes nothing.
#![forbid(unsafe_code)]

mod daemon;
mod device;
mod input;
mod memcached;
mod ring;
mod services;
mod stack;
mod streams;
mod tcp;

/// A target's name, and the target.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 9] = [
    ("stack", stack::run),
    ("tcp", tcp::run),
    ("services", services::run),
    ("memcached", memcached::run),
    ("memcached_udp", memcached::run_udp),
    ("http", streams::http),
    ("netpipe", streams::netpipe),
    ("daemon", daemon::run),
    ("ring", ring::run),
];

/// What a core of a machine has unless its manifest says otherwise (`docs/manifest.md`): whoever nests what
/// he sends must not get further than it does.
pub const STACK_BYTES: usize = 256 << 10;

/// Runs the target of a name on one input, on a stack as machines have it. What overflows that ends the
/// process.
///
/// # Panics
/// If there is no such target; or if the input finds something.
pub fn run(name: &str, data: &[u8]) {
    let (_, target) = TARGETS.iter().find(|(known, _)| *known == name).expect("a target of this name");
    on_stack(|| target(data));
}

/// Calls `what` on a stack of [`STACK_BYTES`].
///
/// # Panics
/// If there is no memory for a thread; or as `what` does.
pub fn on_stack(what: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, what);
        let end = thread.expect("memory for a thread").join();
        end.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}
