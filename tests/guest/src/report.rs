//! Checks and how they are reported.

use alloc::format;
use alloc::string::String;
use core::fmt::{self, Debug};
use core::sync::atomic::Ordering::Relaxed;
use nom_sys::abi::ipc::RingError;
use nom_sys::abi::layout::APPLICATIONS_MAX;
use nom_sys::start::board;
use nom_sys::{Error, applications, events, println, time};

/// Why a check failed.
pub struct Failure(String);

impl Debug for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure(format!("unexpected error {}", error.name()))
    }
}

impl From<RingError> for Failure {
    fn from(error: RingError) -> Failure {
        Failure(format!("unexpected error {error:?}"))
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Failure {
        Failure(text)
    }
}

impl From<&str> for Failure {
    fn from(text: &str) -> Failure {
        Failure(text.into())
    }
}

/// Outcome of a check.
pub type Check = Result<(), Failure>;

/// Fails unless both are equal.
///
/// # Errors
/// Says what was expected.
pub fn expect<T: PartialEq + Debug>(what: &str, actual: T, expected: T) -> Check {
    if actual == expected {
        return Ok(());
    }
    Err(Failure(format!("{what} is {actual:?}, expected {expected:?}")))
}

/// Fails unless `condition` holds.
///
/// # Errors
/// Says `what` does not hold.
pub fn expect_that(what: &str, condition: bool) -> Check {
    if condition { Ok(()) } else { Err(Failure(format!("not so: {what}"))) }
}

/// Frames that are free or charged to an application: the same at any moment, unless some are lost.
pub fn accounted_frames() -> u64 {
    let board = board();
    let charged = || {
        (0..APPLICATIONS_MAX)
            .map(|application| applications::usage(application).frames.load(Relaxed))
            .sum::<u64>()
    };
    // Each change is published in several steps: two readings that agree had none between them.
    loop {
        let sums = [(); 2].map(|()| board.machine.frames_free.load(Relaxed) + charged());
        if sums[0] == sums[1] {
            return sums[0];
        }
    }
}

/// How long something may take that the kernel does soon, on a computer with much to do.
const PATIENCE_NS: u64 = 20_000_000_000;
/// Time between two looks at the board.
const LOOK_NS: u64 = 500_000;

/// Looks at the board until `condition` holds; `false` if it does not in time.
pub fn comes_true(condition: impl Fn() -> bool) -> bool {
    let deadline = time::now_ns() + PATIENCE_NS;
    while !condition() {
        if time::now_ns() > deadline {
            return false;
        }
        events::sleep(LOOK_NS);
    }
    true
}

/// Fails unless all comes back that an ended application had: nothing is charged to it, and
/// [`accounted_frames`] are what they were `before` it began. The kernel takes it back in pieces, by
/// whichever core looks next, so that some of it may come after the end is known.
///
/// # Errors
/// Says which frames stayed away.
pub fn expect_taken_back(application: usize, before: u64) -> Check {
    let charged = || applications::usage(application).frames.load(Relaxed);
    comes_true(|| charged() == 0 && accounted_frames() == before);
    expect("frames charged to the application that ended", charged(), 0)?;
    expect("frames that are free or charged to somebody", accounted_frames(), before)
}

/// A check and its name.
pub type Named<'a> = (&'a str, fn() -> Check);

/// Runs checks by name, prints how each went, and returns the exit status.
pub fn run(checks: &[Named<'_>]) -> u8 {
    let mut status = 0;
    for (name, check) in checks {
        match check() {
            Ok(()) => println!("ok {name}"),
            Err(why) => {
                println!("FAILED {name}: {why:?}");
                status = 1;
            }
        }
    }
    status
}
