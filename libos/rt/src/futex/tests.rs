use super::*;
use parking_lot::RawMutex;
use proptest::prelude::*;
use std::pin::pin;
use std::sync::atomic::AtomicU32;
use std::task::Wake;
use std::thread;

/// Counts its wake-ups.
#[derive(Default)]
struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// One who waits, by the model: who it is, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    who: usize,
    address: u64,
    bits: u32,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Begins to wait, if the word is still what it was.
    Wait {
        address: u64,
        bits: u32,
        unchanged: bool,
    },
    /// One who waits looks again.
    Look(usize),
    /// One who waits goes away: its time is over.
    Leave(usize),
    Wake {
        address: u64,
        count: usize,
        bits: u32,
    },
    Requeue {
        from: u64,
        to: u64,
        wakes: usize,
        moves: usize,
        unchanged: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let address = 0..4_u64;
    prop_oneof![
        4 => (address.clone(), 1..4_u32, prop::bool::weighted(0.9))
            .prop_map(|(address, bits, unchanged)| Step::Wait { address, bits, unchanged }),
        2 => any::<usize>().prop_map(Step::Look),
        1 => any::<usize>().prop_map(Step::Leave),
        3 => (address.clone(), 0..4_usize, 1..4_u32)
            .prop_map(|(address, count, bits)| Step::Wake { address, count, bits }),
        2 => (address.clone(), address, 0..3_usize, 0..4_usize, prop::bool::weighted(0.9)).prop_map(
            |(from, to, wakes, moves, unchanged)| Step::Requeue { from, to, wakes, moves, unchanged }
        ),
    ]
}

/// Who is to be woken by the model; they wait no more.
fn model_wake(waiting: &mut Vec<Place>, address: u64, count: usize, bits: u32) -> Vec<usize> {
    let chosen = |place: &Place| place.address == address && place.bits & bits != 0;
    let woken: Vec<usize> = waiting.iter().filter(|it| chosen(it)).take(count).map(|it| it.who).collect();
    waiting.retain(|place| !woken.contains(&place.who));
    woken
}

/// A wait, and how often it was woken.
type Counted<'a> = (Pin<Box<dyn Future<Output = Result<(), Changed>> + 'a>>, Arc<Count>);
type Waits<'a> = Vec<Option<Counted<'a>>>;

/// What the model knows: who waits, in order, and who was woken and has not looked since.
#[derive(Default)]
struct Model {
    waiting: Vec<Place>,
    woken: Vec<Place>,
}

impl Model {
    fn wake(&mut self, address: u64, count: usize, bits: u32) -> usize {
        let before = self.waiting.clone();
        let woken = model_wake(&mut self.waiting, address, count, bits);
        self.woken.extend(before.into_iter().filter(|place| woken.contains(&place.who)));
        woken.len()
    }
}

fn poll(wait: &mut Counted<'_>) -> Poll<Result<(), Changed>> {
    let waker = Waker::from(wait.1.clone());
    wait.0.as_mut().poll(&mut Context::from_waker(&waker))
}

fn run(step: Step, futexes: &'static FutexTable<RawMutex>, waits: &mut Waits<'static>, model: &mut Model) {
    match step {
        Step::Wait { address, bits, unchanged } => {
            let mut wait: Counted<'static> =
                (Box::pin(futexes.wait(address, bits, move || unchanged)), Arc::default());
            let expected = if unchanged { Poll::Pending } else { Poll::Ready(Err(Changed)) };
            assert_eq!(poll(&mut wait), expected);
            if unchanged {
                model.waiting.push(Place { who: waits.len(), address, bits });
            }
            waits.push(unchanged.then_some(wait));
        }
        Step::Look(who) | Step::Leave(who) if waits.is_empty() || waits[who % waits.len()].is_none() => {}
        Step::Look(who) => {
            let who = who % waits.len();
            let is_woken = model.woken.iter().any(|place| place.who == who);
            let expected = if is_woken { Poll::Ready(Ok(())) } else { Poll::Pending };
            assert_eq!(poll(waits[who].as_mut().expect("it waits")), expected);
            if is_woken {
                model.woken.retain(|place| place.who != who);
                waits[who] = None;
            }
        }
        Step::Leave(who) => {
            let who = who % waits.len();
            waits[who] = None;
            model.waiting.retain(|place| place.who != who);
            if let Some(index) = model.woken.iter().position(|place| place.who == who) {
                let Place { address, bits, .. } = model.woken.remove(index);
                model.wake(address, 1, bits);
            }
        }
        Step::Wake { address, count, bits } => {
            assert_eq!(futexes.wake(address, count, bits), model.wake(address, count, bits));
        }
        Step::Requeue { from, to, wakes, moves, unchanged } => {
            let answer = futexes.requeue(from, to, wakes, moves, || unchanged);
            if !unchanged {
                return assert_eq!(answer, Err(Changed));
            }
            let woken = model.wake(from, wakes, u32::MAX);
            let mut moved = Vec::new();
            if from != to {
                moved.extend(model.waiting.iter().copied().filter(|it| it.address == from).take(moves));
                model.waiting.retain(|place| !moved.contains(place));
                model.waiting.extend(moved.iter().map(|place| Place { address: to, ..*place }));
            }
            assert_eq!(answer, Ok((woken, moved.len())));
        }
    }
}

proptest! {
    /// Against a list: who came first is woken first, each once, and who goes away after it was woken passes
    /// that on.
    #[test]
    fn a_table_is_a_list_of_those_who_wait(
        steps in prop::collection::vec(step(), 0..60),
        places in 1..5_usize,
        key: u64,
    ) {
        // One for each case, for as long as the test runs: what waits borrows it.
        let futexes: &'static FutexTable<RawMutex> = Box::leak(Box::new(FutexTable::new(places, key)));
        let (mut waits, mut model) = (Waits::new(), Model::default());
        for step in steps {
            run(step, futexes, &mut waits, &mut model);
            for address in 0..4 {
                let expected = model.waiting.iter().filter(|place| place.address == address).count();
                prop_assert_eq!(futexes.waiting(address), expected);
            }
            for (who, wait) in waits.iter().enumerate() {
                let is_woken = model.woken.iter().any(|place| place.who == who);
                let told = wait.as_ref().map_or(0, |(_, count)| count.0.load(Ordering::SeqCst));
                prop_assert_eq!(told, u32::from(is_woken && wait.is_some()));
            }
        }
    }
}

/// Blocks the thread until the future is ready.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        thread::park();
    }
}

/// A mutex as programs make it of a futex (Drepper, "Futexes are tricky", section 5): 0 free, 1 taken, 2
/// taken and somebody waits.
struct Lock<'a> {
    word: AtomicU32,
    futexes: &'a FutexTable<RawMutex>,
}

impl Lock<'_> {
    fn address(&self) -> u64 {
        std::ptr::from_ref(&self.word).addr() as u64
    }

    fn lock(&self) {
        if self.word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return;
        }
        while self.word.swap(2, Ordering::Acquire) != 0 {
            let unchanged = || self.word.load(Ordering::Relaxed) == 2;
            let _ = block_on(self.futexes.wait(self.address(), u32::MAX, unchanged));
        }
    }

    fn unlock(&self) {
        if self.word.swap(0, Ordering::Release) == 2 {
            self.futexes.wake(self.address(), 1, u32::MAX);
        }
    }
}

/// Threads of several cores: no two have the lock, no wake-up is lost (the test would not end), and who goes
/// away in the middle of a wait takes none along.
#[test]
fn a_lock_made_of_a_futex_is_one() {
    let rounds = if cfg!(miri) { 20 } else { 20_000 };
    let futexes = FutexTable::<RawMutex>::new(4, 7);
    let lock = Lock { word: AtomicU32::new(0), futexes: &futexes };
    let (inside, total) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..rounds {
                    lock.lock();
                    assert_eq!(inside.swap(1, Ordering::Relaxed), 0, "two are inside");
                    total.fetch_add(1, Ordering::Relaxed);
                    inside.store(0, Ordering::Relaxed);
                    lock.unlock();
                    if round % 16 == 0 {
                        let mut wait = pin!(futexes.wait(lock.address(), u32::MAX, || true));
                        let _ = wait.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                    }
                }
            });
        }
    });
    assert_eq!(total.load(Ordering::Relaxed), 4 * rounds);
    assert_eq!(futexes.waiting(lock.address()), 0);
}
