//! Gives processors back in the middle of work, and takes them again for it.
//!
//! Arguments: none, or `beside` and the name of an application that wants all of a processor.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::array;
use core::cell::Cell;
use core::hint::black_box;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use nom_app::alloc::{boxed::Box, rc::Rc, vec::Vec};
use nom_app::cores::{self, Core};
use nom_app::{Error, application, applications, args, board, events, println, time, upcall};
use nom_guest_tests::processors::{held, processors, wait_until};
use nom_guest_tests::{Check, border, expect, expect_that, run};

nom_app::main!(main);

/// How long everybody together may take.
const TIMEOUT_NS: u64 = 60_000_000_000;
/// How often work pauses and is resumed.
const ROUNDS: u64 = 3000;
/// The same where somebody else wants the processor, too.
const ROUNDS_BESIDE: u64 = 50;
/// Rounding towards zero, all exceptions masked: MXCSR and x87.
const TOWARDS_ZERO: (u32, u16) = (0x7f80, 0xf7f);

fn main() -> u8 {
    if args().next() == Some("beside") {
        return run(&[("neighbour-has-the-processor", beside)]);
    }
    run(&[
        ("first-core-stays", first_core),
        ("pause-and-resume", pause_and_resume),
        ("a-pause-that-was-ended-before", ended_before),
        ("no-core-for-what-pauses", no_core),
        ("handler-after-a-pause", handler),
        ("resumed-at-any-moment", any_moment),
    ])
}

/// Waits until work pauses and its core is released.
fn wait_for_pause(core: &Core, others: u64) -> Check {
    wait_until(TIMEOUT_NS, "the work pauses", || core.is_paused())?;
    wait_until(TIMEOUT_NS, "its core is released", || held() == others)
}

/// Ends work that pauses.
fn finish(mut core: Core) -> Check {
    STOP.store(true, Relaxed);
    while !core.is_finished() {
        core.resume()?;
        events::yield_core();
    }
    core.join();
    STOP.store(false, Relaxed);
    wait_until(TIMEOUT_NS, "its core is released", || held() == 1)
}

fn first_core() -> Check {
    expect("a pause of the first core", cores::pause().unwrap_err(), Error::LastCore)
}

/// Whether work that pauses is to return.
static STOP: AtomicBool = AtomicBool::new(false);
/// How often the work began a pause; how often it may; the processor where it last was.
static BEGUN: AtomicU64 = AtomicU64::new(0);
static ALLOWED: AtomicU64 = AtomicU64::new(0);
static PLACE: AtomicU64 = AtomicU64::new(0);
/// Pauses behind which something was not as before.
static WRONG: AtomicU64 = AtomicU64::new(0);

/// What work has that is nobody else's, some of it tied to its core.
struct Belongings {
    pauses: Rc<Cell<u64>>,
    boxes: Vec<Box<[u64; 5]>>,
}

impl Belongings {
    fn new() -> Belongings {
        border::set_float_control(TOWARDS_ZERO);
        Belongings { pauses: Rc::new(Cell::new(0)), boxes: Vec::new() }
    }

    /// Pauses, and looks whether everything is there behind it.
    fn pause(&mut self) -> bool {
        let (pauses, number) = (self.pauses.clone(), self.pauses.get() + 1);
        let on_stack: [u64; 32] = black_box(array::from_fn(|index| number ^ index as u64));
        self.boxes.push(Box::new([number; 5]));
        self.pauses.set(number);
        let paused = cores::pause();
        let all = self.boxes.iter().zip(number + 1 - self.boxes.len() as u64..);
        let right = paused.is_ok()
            && pauses.get() == number
            && black_box(on_stack).iter().zip(0..).all(|(word, index)| *word == number ^ index)
            && all.into_iter().all(|(kept, number)| **kept == [number; 5])
            && border::float_control() == TOWARDS_ZERO;
        // What was allocated on one processor is freed on another.
        if self.boxes.len() == 50 {
            self.boxes.clear();
        }
        right
    }
}

/// Pauses as often as it is allowed to.
fn work() {
    let mut own = Belongings::new();
    while !STOP.load(Relaxed) {
        PLACE.store(cores::current() as u64, Relaxed);
        if BEGUN.load(Relaxed) < ALLOWED.load(Relaxed) {
            BEGUN.fetch_add(1, Relaxed);
            WRONG.fetch_add((!own.pause()).into(), Relaxed);
        }
        core::hint::spin_loop();
    }
}

/// Starts [`work`].
fn begin() -> Result<Core, Error> {
    for counter in [&BEGUN, &ALLOWED, &WRONG] {
        counter.store(0, Relaxed);
    }
    cores::acquire(work)
}

/// Has the work pause for the `round`th time.
fn let_pause(core: &Core, round: u64) -> Check {
    ALLOWED.store(round, Relaxed);
    wait_until(TIMEOUT_NS, "a pause begins", || BEGUN.load(Relaxed) == round)?;
    wait_for_pause(core, 1)
}

fn pause_and_resume() -> Check {
    if processors() == 1 {
        return Ok(());
    }
    let others: Vec<u64> = (0..processors()).filter(|core| *core != cores::current() as u64).collect();
    let frames = || applications::usage(application()).frames.load(Relaxed);
    let mut core = begin()?;
    let_pause(&core, 1)?;
    let (before, start) = (frames(), time::now_ns());
    for round in 1..=ROUNDS {
        let hint = others[round as usize % others.len()];
        core.resume_near(hint)?;
        expect("cores held", held(), 2)?;
        expect("the core", core.number() as u64, hint)?;
        PLACE.store(u64::MAX, Relaxed);
        wait_until(TIMEOUT_NS, "the work goes on", || PLACE.load(Relaxed) != u64::MAX)?;
        expect("where it is", PLACE.load(Relaxed), hint)?;
        let_pause(&core, round + 1)?;
    }
    println!("pause and resume: {} ns each", (time::now_ns() - start) / ROUNDS);
    expect("frames held", frames(), before)?;
    finish(core)?;
    expect("pauses behind which something was wrong", WRONG.load(Relaxed), 0)
}

fn ended_before() -> Check {
    if processors() == 1 {
        return Ok(());
    }
    let mut core = begin()?;
    core.resume()?;
    core.resume()?;
    ALLOWED.store(1, Relaxed);
    wait_until(TIMEOUT_NS, "a pause begins", || BEGUN.load(Relaxed) == 1)?;
    PLACE.store(u64::MAX, Relaxed);
    wait_until(TIMEOUT_NS, "it is over", || PLACE.load(Relaxed) != u64::MAX)?;
    // Twice before is once.
    let_pause(&core, 2)?;
    finish(core)?;
    expect("pauses behind which something was wrong", WRONG.load(Relaxed), 0)
}

fn no_core() -> Check {
    if processors() == 1 {
        return Ok(());
    }
    let mut core = begin()?;
    let_pause(&core, 1)?;
    static MEANWHILE: AtomicBool = AtomicBool::new(true);
    let stay = || {
        while MEANWHILE.load(Relaxed) {
            core::hint::spin_loop();
        }
    };
    let others = (1..processors()).map(|_| cores::acquire(stay)).collect::<Result<Vec<_>, _>>()?;
    for _ in 0..3 {
        expect("a resumption", core.resume().unwrap_err(), Error::NoCore)?;
        expect_that("it still pauses", core.is_paused())?;
    }
    MEANWHILE.store(false, Relaxed);
    others.into_iter().for_each(Core::join);
    // Those that leave count as free.
    core.resume()?;
    let_pause(&core, 2)?;
    finish(core)?;
    expect("pauses behind which something was wrong", WRONG.load(Relaxed), 0)
}

static UPCALLS: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);

fn count(upcall: &mut upcall::Delivery) {
    UPCALLS.fetch_add(1, Relaxed);
    REFUSED.fetch_add((cores::pause() == Err(Error::WrongContext)).into(), Relaxed);
    border::skip_undefined(upcall);
}

fn handler() -> Check {
    const PAUSES: u64 = 100;
    if processors() == 1 {
        return Ok(());
    }
    let mut core = cores::acquire(|| {
        if upcall::register(count).is_err() {
            return;
        }
        for _ in 0..PAUSES {
            border::raise_undefined();
            WRONG.fetch_add(cores::pause().is_err().into(), Relaxed);
        }
        border::raise_undefined();
    })?;
    WRONG.store(0, Relaxed);
    while !core.is_finished() {
        core.resume()?;
        // Some upcalls come while it leaves or comes back.
        let _ = cores::notify(core.number());
        events::yield_core();
    }
    core.join();
    expect("pauses that failed", WRONG.load(Relaxed), 0)?;
    expect("pauses refused in a handler", REFUSED.load(Relaxed), UPCALLS.load(Relaxed))?;
    expect_that("every exception was handled", UPCALLS.load(Relaxed) > PAUSES)?;
    wait_until(TIMEOUT_NS, "its core is released", || held() == 1)
}

/// Nobody waits for anybody: a pause begins, ends, and ends before it begins in every order there is.
fn any_moment() -> Check {
    static PAUSED: AtomicU64 = AtomicU64::new(0);
    let rove = || {
        let mut own = Belongings::new();
        for _ in 0..ROUNDS {
            WRONG.fetch_add((!own.pause()).into(), Relaxed);
            PAUSED.fetch_add(1, Relaxed);
        }
    };
    WRONG.store(0, Relaxed);
    let mut team = (1..processors()).map(|_| cores::acquire(rove)).collect::<Result<Vec<_>, _>>()?;
    let deadline = time::now_ns() + TIMEOUT_NS;
    while !team.iter().all(Core::is_finished) && time::now_ns() < deadline {
        for core in &mut team {
            core.resume()?;
        }
    }
    expect("pauses", PAUSED.load(Relaxed), (processors() - 1) * ROUNDS)?;
    team.into_iter().for_each(Core::join);
    expect("pauses behind which something was wrong", WRONG.load(Relaxed), 0)?;
    wait_until(TIMEOUT_NS, "the cores are released", || held() == 1)
}

/// Somebody else wants the processor: it has it while the work pauses, and shares it otherwise.
fn beside() -> Check {
    let neighbour = applications::find(args().nth(1).ok_or("no name")?)? as u32;
    let mut core = begin()?;
    let place = core.number();
    let running = || board().cores[place].running.load(Relaxed);
    for round in 1..=ROUNDS_BESIDE {
        let_pause(&core, round)?;
        expect("who holds the processor", board().cores[place].holders.load(Relaxed), 1 << neighbour)?;
        wait_until(TIMEOUT_NS, "the neighbour runs there", || running() == neighbour)?;
        core.resume()?;
        expect("the core", core.number(), place)?;
        PLACE.store(u64::MAX, Relaxed);
        wait_until(TIMEOUT_NS, "the work goes on", || PLACE.load(Relaxed) != u64::MAX)?;
    }
    finish(core)?;
    expect("pauses behind which something was wrong", WRONG.load(Relaxed), 0)
}
