//! The driver's queues against the device's.

use super::*;
use nom_port::device::Dma;
use nom_virtio_fake::{DeviceQueue, FakeMemory, Lent, Piece, QueueSetup};
use proptest::prelude::*;
use std::collections::VecDeque;

/// Both sides of one queue.
struct Pair {
    driver: Queue<u64>,
    device: DeviceQueue,
    memory: FakeMemory,
    areas: Areas,
    block: (u64, usize),
}

fn pair(layout: Layout) -> Pair {
    let mut memory = FakeMemory::new(1 << 20);
    let block = memory.allocate(layout.bytes()).unwrap();
    let (driver, areas) = Queue::new(layout, &mut Carver::new(block)).unwrap();
    let Layout { size, packed, event_index } = layout;
    let areas_bus = [areas.descriptors, areas.driver, areas.device];
    let setup = QueueSetup { areas: areas_bus, size, is_packed: packed, event_index };
    let device = DeviceQueue::new(memory.clone(), setup);
    Pair { driver, device, memory, areas, block: (block.bus, block.bytes) }
}

fn layouts(size: u16) -> impl Iterator<Item = Layout> {
    [(false, false), (false, true), (true, false), (true, true)]
        .into_iter()
        .map(move |(packed, event_index)| Layout { size, packed, event_index })
}

/// A chain of `count` made-up descriptors, told from others by `token`.
fn chain(token: u64, count: u64) -> Vec<Descriptor> {
    (0..count)
        .map(|index| match index * 2 < count {
            true => Descriptor::readable(token << 16 | index, 10 + index as u32),
            false => Descriptor::writable(token << 16 | index, 10 + index as u32),
        })
        .collect()
}

fn pieces(chain: &[Descriptor]) -> Vec<Piece> {
    let piece = |d: &Descriptor| Piece { bus: d.bus, bytes: d.bytes, is_writable: d.flags & WRITE != 0 };
    chain.iter().map(piece).collect()
}

#[test]
fn areas_are_aligned_and_inside() {
    for size in [1, 2, 4, 256, 1 << 15] {
        for layout in layouts(size) {
            let Pair { areas, block: (bus, bytes), .. } = pair(layout);
            let n = u64::from(size);
            let (driver, device) = if layout.packed { (4, 4) } else { (6 + 2 * n, 6 + 8 * n) };
            for (at, align, length) in
                [(areas.descriptors, 16, 16 * n), (areas.driver, 2, driver), (areas.device, 4, device)]
            {
                assert!(at % align == 0 && at >= bus && at + length <= bus + bytes as u64, "{layout:?}");
            }
        }
    }
}

#[test]
fn indices_wrap() {
    let rounds = if cfg!(miri) { 100 } else { 70_000 };
    for layout in layouts(4) {
        let Pair { mut driver, mut device, .. } = pair(layout);
        for token in 0..rounds {
            let descriptors = chain(token, 1 + token % 3);
            device.want_kicks();
            driver.push(&descriptors, token).unwrap();
            assert!(driver.publish(), "{layout:?}: the device waits for chain {token}");
            let lent = device.take().unwrap();
            assert_eq!(lent.pieces, pieces(&descriptors));
            assert!(driver.arm());
            assert!(device.put(&lent, token as u32), "{layout:?}: the driver waits for chain {token}");
            assert!(driver.is_ready());
            assert_eq!(driver.pop(), Some((token, token as u32)));
            assert_eq!((driver.pop(), driver.free(), driver.lent()), (None, 4, 0));
        }
        assert_eq!(driver.errors(), Errors::default());
    }
}

#[test]
fn a_full_queue_gives_the_token_back() {
    for layout in layouts(4) {
        let Pair { mut driver, mut device, .. } = pair(layout);
        assert_eq!(driver.push(&[], 7), Err(7));
        assert_eq!(driver.push(&chain(1, 5), 7), Err(7));
        assert_eq!(driver.push(&chain(1, 3), 1), Ok(()));
        assert_eq!(driver.push(&chain(2, 2), 7), Err(7));
        assert_eq!(driver.push(&chain(2, 1), 2), Ok(()));
        assert_eq!((driver.free(), driver.next_id()), (0, None));
        driver.publish();
        let lent = device.take().unwrap();
        assert_eq!(lent.pieces.len(), 3);
        device.put(&lent, 0);
        assert_eq!((driver.pop(), driver.free()), (Some((1, 0)), 3));
    }
}

#[test]
fn tables_are_read_as_chains() {
    for layout in layouts(4) {
        let Pair { mut driver, mut device, mut memory, .. } = pair(layout);
        let table = memory.allocate(4096).unwrap();
        let descriptors = chain(9, 40);
        for (index, descriptor) in descriptors.iter().enumerate() {
            let entry = driver.table_entry(*descriptor, index, index == 39);
            memory.write(table.bus + (index * TABLE_ENTRY) as u64, &entry);
        }
        driver.push(&[Descriptor::indirect(table.bus, 40)], 9).unwrap();
        driver.publish();
        let lent = device.take().unwrap();
        assert_eq!((&lent.pieces, lent.places), (&pieces(&descriptors), 1));
    }
}

/// With event indices, one question is one interrupt; without, the driver's flag holds until it changes.
#[test]
fn interrupts_come_when_asked_for() {
    for layout in layouts(8) {
        let Pair { mut driver, mut device, .. } = pair(layout);
        driver.disarm();
        (0..4).for_each(|token| driver.push(&chain(token, 1), token).unwrap());
        driver.publish();
        let lent: Vec<Lent> = std::iter::from_fn(|| device.take()).collect();
        assert!(!device.put(&lent[0], 0));
        assert!(!driver.arm(), "{layout:?}: one is there already");
        driver.pop();
        assert!(driver.arm());
        assert!(device.put(&lent[1], 0));
        driver.disarm();
        assert!(!device.put(&lent[2], 0) && !device.put(&lent[3], 0));
        assert_eq!(std::iter::from_fn(|| driver.pop()).count(), 3);
    }
}

#[test]
fn kicks_are_spared_when_unwanted() {
    for layout in layouts(8) {
        let Pair { mut driver, mut device, .. } = pair(layout);
        assert!(!driver.publish(), "nothing to tell");
        device.refuse_kicks();
        driver.push(&chain(1, 2), 1).unwrap();
        assert!(!driver.publish());
        device.take().unwrap();
        device.want_kicks();
        driver.push(&chain(2, 2), 2).unwrap();
        driver.push(&chain(3, 1), 3).unwrap();
        assert!(driver.publish());
        assert!(!driver.publish(), "told already");
    }
}

#[test]
fn nonsense_from_the_device_is_counted() {
    for layout in layouts(4) {
        let lent_two = || {
            let Pair { mut driver, mut device, .. } = pair(layout);
            (0..2).for_each(|token| driver.push(&chain(token, 1), token).unwrap());
            driver.publish();
            let (first, second) = (device.take().unwrap(), device.take().unwrap());
            (driver, device, first, second)
        };
        let (mut driver, mut device, ..) = lent_two();
        device.put_raw(4, 1, 0);
        assert_eq!((driver.pop(), driver.errors().identifier_out_of_range), (None, 1));

        let (mut driver, mut device, first, _) = lent_two();
        device.put(&first, 0);
        device.put(&first, 0);
        assert_eq!((driver.pop(), driver.pop()), (Some((0, 0)), None));
        assert_eq!(driver.errors().identifier_not_lent, 1);

        let (mut driver, mut device, first, second) = lent_two();
        for lent in [&first, &second, &first] {
            device.put(lent, 0);
        }
        let tokens: Vec<u64> = std::iter::from_fn(|| driver.pop()).map(|(token, _)| token).collect();
        // A split ring's index says too much at once; a packed ring is believed until it goes wrong.
        assert_eq!(tokens, if layout.packed { vec![0, 1] } else { vec![] });
        assert_eq!((driver.errors().overrun, driver.is_ready()), (1, false));
        assert!(!driver.has_seen());
    }
}

/// A step of one of the two sides.
#[derive(Clone, Debug)]
enum Step {
    Push(u64),
    Publish,
    Pop,
    Arm,
    Disarm,
    Take,
    Use(usize),
    WantKicks,
    RefuseKicks,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1u64..4).prop_map(Step::Push),
        3 => Just(Step::Publish),
        4 => Just(Step::Pop),
        1 => Just(Step::Arm),
        1 => Just(Step::Disarm),
        5 => Just(Step::Take),
        5 => any::<usize>().prop_map(Step::Use),
        1 => Just(Step::WantKicks),
        1 => Just(Step::RefuseKicks),
    ];
    prop::collection::vec(step, 1..if cfg!(miri) { 60 } else { 400 })
}

fn layout() -> impl Strategy<Value = Layout> {
    (0u32..5, any::<bool>(), any::<bool>(), 1u16..20).prop_map(|(power, packed, event_index, odd)| {
        // A packed queue may have any size.
        Layout { size: if packed { odd } else { 1 << power }, packed, event_index }
    })
}

/// Both sides with what each must remember.
struct Model {
    pair: Pair,
    token: u64,
    /// Chains pushed and not yet taken, in order.
    pushed: VecDeque<(u64, Vec<Descriptor>)>,
    unpublished: usize,
    /// Chains that the device has.
    taken: Vec<(u64, Lent)>,
    /// Chains used and not yet popped, in order.
    used: VecDeque<(u64, u32)>,
    /// The device waits for a kick.
    waits: bool,
    /// The driver waits for an interrupt.
    sleeps: bool,
}

impl Model {
    fn step(&mut self, step: &Step) {
        match step {
            Step::Push(count) => self.push(*count),
            Step::Publish => {
                let news = std::mem::take(&mut self.unpublished) > 0;
                let kicked = self.pair.driver.publish();
                assert!(kicked || !(news && self.waits), "the device waits for ever");
                self.waits &= !kicked;
            }
            Step::Pop => {
                let expected = self.used.pop_front();
                assert_eq!(self.pair.driver.pop(), expected);
                self.sleeps = false;
            }
            Step::Arm => {
                self.sleeps = self.pair.driver.arm();
                assert_eq!(self.sleeps, self.used.is_empty());
            }
            Step::Disarm => {
                self.pair.driver.disarm();
                self.sleeps = false;
            }
            Step::Take => self.take(),
            Step::Use(which) => self.put(*which),
            Step::WantKicks => {
                self.pair.device.want_kicks();
                // A device looks again after it asked; what is there already needs no kick.
                self.waits = self.pushed.len() == self.unpublished;
            }
            Step::RefuseKicks => {
                self.pair.device.refuse_kicks();
                self.waits = false;
            }
        }
    }

    fn push(&mut self, count: u64) {
        let descriptors = chain(self.token, count);
        let fits = self.pair.driver.free() >= descriptors.len();
        assert_eq!(self.pair.driver.push(&descriptors, self.token).is_ok(), fits);
        if fits {
            self.pushed.push_back((self.token, descriptors));
            self.unpublished += 1;
            self.token += 1;
        }
    }

    fn take(&mut self) {
        let lent = self.pair.device.take();
        // A packed chain can be seen before it is published, a split one cannot.
        assert!(lent.is_some() || self.pushed.len() == self.unpublished, "a published chain is not seen");
        if let Some(lent) = lent {
            let (token, descriptors) = self.pushed.pop_front().expect("a chain that was pushed");
            self.unpublished = self.unpublished.min(self.pushed.len());
            assert_eq!(lent.pieces, pieces(&descriptors));
            self.taken.push((token, lent));
            self.waits = false;
        }
    }

    fn put(&mut self, which: usize) {
        if !self.taken.is_empty() {
            let (token, lent) = self.taken.swap_remove(which % self.taken.len());
            let interrupt = self.pair.device.put(&lent, token as u32 ^ 5);
            assert!(interrupt || !self.sleeps, "the driver sleeps for ever");
            self.used.push_back((token, token as u32 ^ 5));
            self.sleeps = false;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 8 } else { 256 }, ..Default::default() })]

    /// Whatever the order of steps: every chain arrives as it was pushed, comes back once and in the order of
    /// use, and nobody waits for ever.
    #[test]
    fn both_sides_agree(layout in layout(), steps in steps()) {
        let mut model = Model {
            pair: pair(layout),
            token: 0,
            pushed: VecDeque::new(),
            unpublished: 0,
            taken: Vec::new(),
            used: VecDeque::new(),
            waits: false,
            sleeps: false,
        };
        for step in &steps {
            model.step(step);
        }
        prop_assert_eq!(model.pair.driver.errors(), Errors::default());
        let outstanding = model.pushed.len() + model.taken.len() + model.used.len();
        prop_assert_eq!(model.pair.driver.lent(), outstanding);
    }

    /// A device that writes anything anywhere cannot make the driver panic, return a token twice or lose
    /// count.
    #[test]
    fn a_hostile_device_is_survived(
        layout in layout(),
        writes in prop::collection::vec((any::<u16>(), any::<u16>(), any::<bool>()), 1..100),
    ) {
        let Pair { mut driver, memory, block: (bus, _), .. } = pair(layout);
        let (mut next, mut returned) = (0, std::collections::HashSet::new());
        for (at, value, small) in writes {
            while driver.push(&chain(next, 1 + next % 2), next).is_ok() {
                next += 1;
            }
            driver.publish();
            let words = layout.bytes() as u64 / 2;
            // Small values are what indices and identifiers are like.
            let value = if small { value % (2 * layout.size) } else { value };
            memory.write16(bus + 2 * (u64::from(at) % words), value);
            driver.arm();
            for (token, _) in std::iter::from_fn(|| driver.pop()).take(100) {
                prop_assert!(token < next && returned.insert(token), "token {} came twice", token);
            }
            prop_assert!(driver.free() <= usize::from(layout.size));
            prop_assert_eq!(driver.lent() + returned.len(), next as usize);
        }
    }
}
