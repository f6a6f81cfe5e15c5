//! The process is asked to end: by SIGTERM, or by Ctrl-C in its terminal.

use crate::port::Doorbells;
use crate::sync::Mutex;
use nom_port::world::Doorbell;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::sync::Arc;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static REQUESTED: AtomicBool = AtomicBool::new(false);
/// Those of cores that sleep.
static DOORBELLS: Mutex<Vec<Arc<Doorbells>>> = Mutex::new(Vec::new());

/// From now on the process is asked to end ([`is_requested`]), and not ended, by the first of these signals;
/// the second ends it.
///
/// # Panics
/// If the process may have no more files or threads.
pub fn handle() {
    static HANDLED: Once = Once::new();
    HANDLED.call_once(|| {
        let mut signals = Signals::new([SIGINT, SIGTERM]).expect("the process may have files");
        let listen = move || {
            for signal in &mut signals {
                if REQUESTED.swap(true, Relaxed) {
                    // It ends the process, which is what was asked for.
                    let _ = emulate_default_handler(signal);
                }
                DOORBELLS.lock().iter().for_each(|doorbells| doorbells.ring(0));
            }
        };
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(listen)
            .expect("the process may have threads");
    });
}

/// Wakes the first core of these when the process is asked to end.
pub fn wake(doorbells: Arc<Doorbells>) {
    DOORBELLS.lock().push(doorbells);
}

/// Whether the process was asked to end.
#[inline]
pub fn is_requested() -> bool {
    REQUESTED.load(Relaxed)
}
