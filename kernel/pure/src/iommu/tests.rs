use super::*;
use crate::acpi::{EndpointRange, Viot};
use crate::fakes::pci::FakeFunction;
use crate::fakes::virtio_iommu::FakeVirtioIommu;
use crate::fakes::vtd::{self, FakeVtd};
use crate::fakes::{ECAM, FakeMachine, IO_APIC};
use crate::frames::Frames;
use crate::list::List;
use crate::machine::Frame;
use crate::testing::{Metadata, app, cases, on};
use nom_abi::PageSize;
use proptest::prelude::*;
use std::collections::BTreeSet;

const MESSAGE_ADDRESS: u64 = 0xfee0_0000;
/// Frames of tables are taken from here on; no test maps them.
const TABLE_FRAMES: u64 = 0x8000;
const FIRST_ENDPOINT: u32 = 0x40;

/// A machine, its unit started, and where the unit's frames come from.
struct Rig {
    machine: FakeMachine,
    frames: Frames<'static>,
    /// Most frames that a domain's tables may take from now on.
    left: u64,
    pci: Pci,
    tables: Tables,
    iommu: Iommu,
}

impl Rig {
    fn start(mut machine: FakeMachine, tables: Tables) -> Result<Rig, Error> {
        let mut pci = Pci::none();
        pci.enumerate(&mut machine, ECAM, 0);
        let mut frames = Box::leak(Box::new(Metadata::new(TABLE_FRAMES + 4096))).frames();
        frames.add_free(TABLE_FRAMES..TABLE_FRAMES + 4096);
        let iommu = Iommu::start(&mut Means::of_kernel(&mut machine, &mut frames), &tables, &pci)?;
        Ok(Rig { machine, frames, left: u64::MAX, pci, tables, iommu })
    }

    fn vtd(unit: FakeVtd) -> Rig {
        let mut machine = FakeMachine::new();
        machine.vtd = Some(unit);
        // Bus 3 is behind the third of them.
        for port in 8..11 {
            machine.pci.add(None, port, 0, FakeFunction::root_port(false));
        }
        let mut tables = Tables::default();
        tables.remapping_units.push(vtd::BASE);
        Rig::start(machine, tables).expect("it starts")
    }

    fn virtio() -> Rig {
        let mut machine = FakeMachine::new();
        let number = machine.pci.add(None, 4, 0, FakeFunction::virtio(0x1057, false));
        machine.virtio_iommu = Some(FakeVirtioIommu::new((number, 4), FIRST_ENDPOINT));
        Rig::start(machine, virtio_tables()).expect("it starts")
    }

    /// Has the unit do what takes tables of a domain.
    fn with<T>(
        &mut self,
        domain: usize,
        act: impl FnOnce(&mut Iommu, &mut Means<FakeMachine>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let Rig { iommu, machine, frames, left, .. } = self;
        let by = &mut Means { machine, frames, owner: Owner::dma(app(domain)), at_most: *left };
        let result = act(iommu, by);
        *left = by.at_most;
        result
    }

    /// Frames that nobody holds.
    fn free(&self) -> u64 {
        self.frames.free()
    }

    fn attach_only(&mut self, device: Address, domain: usize) -> Result<(), Error> {
        self.with(domain, |iommu, by| iommu.attach(by, device, app(domain)))
    }

    /// Attaches a device to an application that was granted nothing. Returns whether the domain is new.
    fn attach(&mut self, device: Address, domain: usize) -> Result<bool, Error> {
        self.attach_only(device, domain)?;
        let Domain { devices, mapped_until, .. } = self.iommu.domains[app(domain)];
        while !self.map_grants(domain)? {}
        Ok(devices > 0 && mapped_until == 0)
    }

    fn map_grants(&mut self, domain: usize) -> Result<bool, Error> {
        self.with(domain, |iommu, by| iommu.map_grants(by, app(domain)))
    }

    /// Grants frames, of which the unit is not told.
    fn grant(&mut self, domain: usize, frames: impl Iterator<Item = u64>) {
        self.frames.add_free(0..512);
        let owner = Owner::grants(app(domain));
        frames.for_each(|frame| self.frames.claim(owner, Frame::new(frame), 1).expect("it is free"));
    }

    fn detach(&mut self, device: Address, domain: usize) -> Result<(), Error> {
        self.with(domain, |iommu, by| iommu.detach(by, device, app(domain)))
    }

    fn map(&mut self, domain: usize, frame: u64, size: PageSize, count: u64) -> Result<(), Error> {
        self.with(domain, |iommu, by| {
            iommu.map(by, app(domain), Pages { frame: Frame::new(frame), size, count })
        })
    }

    fn unmap(&mut self, domain: usize, frame: u64, size: PageSize, count: u64) -> Result<(), Error> {
        self.iommu.unmap(&mut self.machine, app(domain), Pages { frame: Frame::new(frame), size, count })
    }

    fn reaches(&mut self, device: Address, frame: u64) -> bool {
        self.machine.reaches(device, frame * 4096 + 8)
    }
}

fn virtio_tables() -> Tables {
    let mut ranges = List::default();
    ranges.push(EndpointRange { first: 0, last: 0xfff, endpoint: FIRST_ENDPOINT });
    let viot = Some(Viot { iommu: Address::new(0, 4, 0).0, ranges });
    Tables { io_apic: Some(IO_APIC), viot, ..Tables::default() }
}

/// Every kind of unit.
fn rigs() -> [Rig; 3] {
    [Rig::vtd(FakeVtd::new(true, true, 3)), Rig::vtd(FakeVtd::new(false, true, 1)), Rig::virtio()]
}

const NET: Address = Address::new(0, 2, 0);
const DISK: Address = Address::new(3, 0, 1);

/// Each interrupt has a place of its own in a unit's table: the power button's, the ports', and of each core.
#[test]
fn no_two_interrupts_have_one_place() {
    let mut places = vec![BUTTON_PLACE];
    places.extend(PORTS_PLACE..PORTS_PLACE + PORTS_MAX);
    let slots = |core| (0..VECTORS).map(move |slot| place_of(CoreId::new(core), slot));
    places.extend((0..nom_abi::layout::CORES_MAX).flat_map(slots));
    let count = places.len();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), count);
    assert_eq!(place_of(CoreId::new(2), 5), 3 * VECTORS + 5);
}

#[test]
fn without_a_unit_everything_is_trusted() {
    let mut rig = Rig::start(FakeMachine::new(), Tables::default()).expect("nothing to start");
    assert_eq!(rig.iommu.protection(), DmaProtection::Trusted);
    assert_eq!(rig.attach(NET, 0), Ok(false));
    assert_eq!(rig.map(0, 1, PageSize::Small, 1), Ok(()));
    assert_eq!(rig.detach(NET, 0), Ok(()));
    assert_eq!(rig.iommu.take_fault(&mut rig.machine), None);
}

/// What is granted and released meanwhile is mapped once, by whoever comes first.
#[test]
fn a_new_domain_is_filled_in_pieces() {
    for mut rig in rigs() {
        // Every second frame: more runs than are mapped at a time.
        rig.grant(5, (100..300).step_by(2));
        rig.attach_only(NET, 5).unwrap();
        assert_eq!(rig.map_grants(5), Ok(false));
        let last = (100..300).filter(|frame| rig.reaches(NET, *frame)).max().expect("some are mapped");
        assert_eq!(last, 100 + 2 * (RUNS_AT_A_TIME as u64 - 1));
        rig.grant(5, [97, 297, 299].into_iter());
        for granted in [97, 297, 299] {
            assert_eq!(rig.map(5, granted, PageSize::Small, 1), Ok(()));
        }
        assert!(rig.reaches(NET, 97) && !rig.reaches(NET, 297), "one behind, and one that is yet to come");
        assert_eq!(rig.unmap(5, 299, PageSize::Small, 1), Ok(()));
        assert_eq!(rig.frames.release(Owner::grants(app(5)), Frame::new(299), PageSize::Small, 1), Ok(()));
        while rig.map_grants(5) == Ok(false) {}
        for frame in 90..310 {
            let is_granted = [97, 297].contains(&frame) || (100..300).contains(&frame) && frame % 2 == 0;
            assert_eq!(rig.reaches(NET, frame), is_granted, "{frame}");
        }
        assert_eq!(rig.map(5, 299, PageSize::Small, 1), Ok(()));
        assert!(rig.reaches(NET, 299), "all is mapped, so this is at once");
    }
}

#[test]
fn a_piece_that_fails_is_yet_to_be_mapped() {
    let mut rig = Rig::vtd(FakeVtd::new(true, true, 3));
    rig.grant(5, 100..102);
    rig.attach_only(NET, 5).unwrap();
    rig.left = 1;
    assert_eq!(rig.map_grants(5), Err(Error::OutOfMemory));
    assert_eq!(rig.map_grants(5), Err(Error::OutOfMemory));
    rig.left = 1;
    while rig.map_grants(5) == Ok(false) {}
    assert!(rig.reaches(NET, 101));
}

#[test]
fn a_device_reaches_its_domain_and_nothing_else() {
    for mut rig in rigs() {
        assert!(!rig.reaches(NET, 100), "unattached devices reach nothing");
        assert_eq!(rig.attach(NET, 5), Ok(true));
        assert_eq!(rig.map(5, 100, PageSize::Small, 3), Ok(()));
        assert_eq!(rig.attach(DISK, 5), Ok(false), "the domain lives already");
        for device in [NET, DISK] {
            let reached: Vec<u64> = (98..105).filter(|frame| rig.reaches(device, *frame)).collect();
            assert_eq!(reached, [100, 101, 102]);
        }
        assert_eq!(rig.unmap(5, 101, PageSize::Small, 1), Ok(()));
        assert!(rig.reaches(NET, 100) && !rig.reaches(NET, 101) && rig.reaches(DISK, 102));
        assert_eq!(rig.detach(NET, 5), Ok(()));
        assert!(!rig.reaches(NET, 100) && rig.reaches(DISK, 100));
        assert_eq!(rig.detach(DISK, 5), Ok(()));
        assert_eq!(rig.attach(NET, 5), Ok(true), "nothing is left of the old domain");
        assert!(!rig.reaches(NET, 100));
    }
}

#[test]
fn a_virtio_iommu_lets_interrupt_messages_pass_and_is_not_said_to_confine_them() {
    let mut rig = Rig::virtio();
    assert_eq!(rig.attach(NET, 5), Ok(true));
    assert!(rig.machine.reaches(NET, MESSAGE_ADDRESS));
    assert_eq!(rig.iommu.protection(), DmaProtection::VirtioIommu);
    assert_eq!(DmaProtection::interrupts(rig.iommu.protection() as u32), "trusted");
}

impl Rig {
    fn bind(&mut self, place: usize, source: Address, vector: u8) -> Option<Message> {
        self.iommu.bind(&mut self.machine, Sender { place, source }, Message::new(2, vector))
    }

    /// Where a message ends up that a function of a VT-d machine writes.
    fn deliver(&mut self, from: Address, message: Message) -> Option<(u64, u8)> {
        let unit = self.machine.vtd.as_mut().expect("it is there");
        unit.deliver(&self.machine.memory, from, message)
    }
}

#[test]
fn a_device_sends_the_interrupts_that_were_bound_for_it_and_no_others() {
    let mut rig = Rig::vtd(FakeVtd::new(true, true, 3));
    assert_eq!(DmaProtection::interrupts(rig.iommu.protection() as u32), "remapped");
    for place in [0, 64, 127, 128, 255] {
        assert_eq!(rig.deliver(NET, Message::remapped(place)), None, "nothing is bound");
        let message = rig.bind(place, NET, 0x31).expect("it is bound");
        assert_eq!(rig.deliver(NET, message), Some((2, 0x31)));
        assert_eq!(rig.deliver(DISK, message), None, "another device's");
        assert_eq!(rig.deliver(NET, Message::new(2, 0x31)), None, "the old format");
        rig.iommu.unbind(&mut rig.machine, place);
        assert_eq!(rig.deliver(NET, message), None, "what is unbound is forgotten");
        assert_eq!(rig.bind(place, DISK, 0x32), Some(message));
        assert_eq!((rig.deliver(DISK, message), rig.deliver(NET, message)), (Some((2, 0x32)), None));
    }
    rig.iommu.trust_interrupts();
    assert_eq!(DmaProtection::interrupts(rig.iommu.protection() as u32), "trusted");
}

#[test]
fn the_table_of_interrupts_has_room_for_every_core() {
    for cores in [1, 3, 4, 64] {
        let mut machine = FakeMachine::new();
        machine.vtd = Some(FakeVtd::new(true, true, 3));
        let mut tables = Tables::default();
        tables.remapping_units.push(vtd::BASE);
        (0..cores).for_each(|id| assert!(tables.processors.push(id)));
        let mut rig = Rig::start(machine, tables).expect("it starts");
        let last = rig.bind(place_of(on(cores as usize - 1), VECTORS - 1), NET, 0x70).expect("it is bound");
        assert_eq!(rig.deliver(NET, last), Some((2, 0x70)));
    }
}

#[test]
fn a_unit_that_cannot_remap_interrupts_confines_memory() {
    let mut unit = FakeVtd::new(true, true, 3);
    unit.can_remap = false;
    let mut rig = Rig::vtd(unit);
    assert_eq!(rig.iommu.protection(), DmaProtection::IntelVtdMemory);
    assert_eq!(rig.bind(64, NET, 0x31), Some(Message::new(2, 0x31)));
    assert_eq!(rig.deliver(DISK, Message::new(0, 20)), Some((0, 20)));
}

#[test]
fn a_domain_that_does_not_live_has_no_mappings() {
    for mut rig in rigs() {
        let before = rig.free();
        assert_eq!(rig.map(3, 100, PageSize::Small, 1), Ok(()));
        assert_eq!(rig.unmap(3, 100, PageSize::Small, 1), Ok(()));
        assert_eq!(rig.detach(NET, 3), Ok(()));
        assert_eq!(rig.free(), before);
        assert_eq!(rig.attach(NET, 3), Ok(true));
        assert!(!rig.reaches(NET, 100));
    }
}

#[test]
fn large_grants_are_mapped_and_unmapped_by_their_units() {
    for mut rig in rigs() {
        assert_eq!(rig.attach(NET, 0), Ok(true));
        let before = rig.free();
        assert_eq!(rig.map(0, 1 << 18, PageSize::Huge, 1), Ok(()));
        assert_eq!(rig.map(0, 512, PageSize::Large, 2), Ok(()));
        assert!(rig.reaches(NET, (1 << 18) + 77_777) && rig.reaches(NET, 1535) && !rig.reaches(NET, 1536));
        if rig.machine.vtd.as_ref().is_some_and(|unit| unit.read(vtd::BASE + 8, 8) >> 34 & 3 == 3) {
            assert_eq!(rig.free(), before - 1, "pages as large as the grants need few tables");
        }
        assert_eq!(rig.unmap(0, 1024, PageSize::Large, 1), Ok(()));
        assert!(rig.reaches(NET, 1023) && !rig.reaches(NET, 1024));
        assert_eq!(rig.unmap(0, 1 << 18, PageSize::Huge, 1), Ok(()));
        assert!(!rig.reaches(NET, (1 << 18) + 77_777));
        // Where small pages were, tables remain: a large page goes there all the same.
        assert_eq!(rig.map(0, 1025, PageSize::Small, 1), Ok(()));
        assert_eq!(rig.unmap(0, 1025, PageSize::Small, 1), Ok(()));
        assert_eq!(rig.map(0, 1024, PageSize::Large, 1), Ok(()));
        assert!((1024..1536).all(|frame| rig.reaches(NET, frame)));
        assert_eq!(rig.unmap(0, 1024, PageSize::Large, 1), Ok(()));
        assert!((1024..1536).all(|frame| !rig.reaches(NET, frame)));
    }
}

#[test]
fn no_page_that_is_larger_than_what_was_asked_for_is_mapped() {
    let mut rig = Rig::vtd(FakeVtd::new(true, true, 3));
    assert_eq!(rig.attach(NET, 0), Ok(true));
    assert_eq!(rig.map(0, 700, PageSize::Large, 1), Ok(()));
    assert!((512..2048).all(|frame| rig.reaches(NET, frame) == (700..1212).contains(&frame)));
}

#[test]
fn more_requests_than_the_queue_holds_are_all_carried_out() {
    let mut rig = Rig::virtio();
    assert_eq!(rig.attach(NET, 0), Ok(true));
    assert_eq!(rig.map(0, 1000, PageSize::Small, 333), Ok(()));
    assert!((1000..1333).all(|frame| rig.reaches(NET, frame)) && !rig.reaches(NET, 1333));
    assert_eq!(rig.unmap(0, 1000, PageSize::Small, 333), Ok(()));
    assert!((1000..1333).all(|frame| !rig.reaches(NET, frame)));
}

#[test]
fn running_out_of_frames_changes_nothing() {
    let mut rig = Rig::vtd(FakeVtd::new(true, false, 0));
    assert_eq!(rig.attach(NET, 0), Ok(true));
    for left in 0..2 {
        rig.left = left;
        assert_eq!(rig.map(0, 100, PageSize::Small, 1), Err(Error::OutOfMemory));
        assert!(!rig.reaches(NET, 100));
    }
    rig.left = 0;
    assert_eq!(rig.attach(DISK, 1), Err(Error::OutOfMemory));
    rig.left = 1;
    assert_eq!(rig.attach(DISK, 1), Ok(true));
}

#[test]
fn memory_that_tables_do_not_span_is_refused() {
    let mut rig = Rig::vtd(FakeVtd::new(true, false, 0));
    assert_eq!(rig.attach(NET, 0), Ok(true));
    assert!(matches!(rig.map(0, 1 << 27, PageSize::Small, 1), Err(Error::Refused(_))));
}

#[test]
fn a_device_that_the_unit_does_not_cover_is_refused() {
    let mut rig = Rig::virtio();
    let far = Address::new(0x20, 0, 0);
    assert_eq!(rig.attach(far, 0), Err(Error::NotCovered));
    assert_eq!(rig.machine.virtio_iommu.as_ref().map(FakeVirtioIommu::domains), Some(0));
}

#[test]
fn a_vtd_unit_that_does_not_answer_is_noticed() {
    let mut rig = Rig::vtd(FakeVtd::new(true, true, 3));
    assert_eq!(rig.attach(NET, 0), Ok(true));
    rig.machine.vtd.as_mut().expect("it is there").is_dead = true;
    assert_eq!(rig.detach(NET, 0), Err(Error::Silent));
    let before = rig.machine.now_ns.get();
    assert_eq!(rig.detach(NET, 0), Err(Error::Silent));
    assert!(rig.machine.now_ns.get() - before < PATIENCE_NS / 1000, "nobody waits twice");
}

#[test]
fn a_unit_that_does_not_answer_is_noticed() {
    let mut rig = Rig::virtio();
    rig.machine.virtio_iommu.as_mut().expect("it is there").is_dead = true;
    let before = rig.machine.now_ns.get();
    assert_eq!(rig.attach(NET, 0), Err(Error::Silent));
    let waited = rig.machine.now_ns.get() - before;
    assert!(waited >= PATIENCE_NS);
    assert_eq!(rig.attach(NET, 0), Err(Error::Silent));
    assert!(rig.machine.now_ns.get() - before - waited < PATIENCE_NS / 1000, "nobody waits twice");
}

#[test]
fn units_that_cannot_be_used_are_errors() {
    let mut machine = FakeMachine::new();
    machine.pci.add(None, 4, 0, FakeFunction::virtio(0x1057, false));
    assert!(matches!(Rig::start(machine, Tables::default()), Err(Error::Refused(_))));
    assert!(matches!(Rig::start(FakeMachine::new(), virtio_tables()), Err(Error::Refused(_))));
    let mut tables = Tables::default();
    tables.remapping_units.push(vtd::BASE);
    let mut machine = FakeMachine::new();
    machine.vtd = Some(FakeVtd::new(false, false, 0));
    assert!(matches!(Rig::start(machine, tables), Err(Error::Refused(_))));
    tables.remapping_units.push(vtd::BASE + 0x1000);
    assert!(matches!(Rig::start(FakeMachine::new(), tables), Err(Error::Refused(_))));
}

#[test]
fn blocked_accesses_are_reported_by_vtd() {
    let mut rig = Rig::vtd(FakeVtd::new(true, false, 0));
    assert_eq!(rig.iommu.take_fault(&mut rig.machine), None);
    for device in [NET, DISK, NET] {
        assert!(!rig.reaches(device, 0x77));
        let fault = DmaFault { device, address: 0x77000 };
        assert_eq!(rig.iommu.take_fault(&mut rig.machine), Some(fault));
        assert_eq!(rig.iommu.take_fault(&mut rig.machine), None);
    }
    assert_eq!(rig.machine.vtd.as_ref().map(|unit| unit.lost), Some(0));
}

#[test]
fn blocked_accesses_are_reported_by_virtio_iommu() {
    let mut rig = Rig::virtio();
    let endpoint = FIRST_ENDPOINT + u32::from(DISK.0);
    for round in 0..200_u64 {
        let unit = rig.machine.virtio_iommu.as_mut().expect("it is there");
        // A report about an endpoint that nobody knows is passed over.
        assert!(unit.report(&mut rig.machine.memory, 1, 0, 0));
        assert!(unit.report(&mut rig.machine.memory, endpoint, round << 33, round as u32 % 4));
        let fault = DmaFault { device: DISK, address: round << 33 };
        assert_eq!(rig.iommu.take_fault(&mut rig.machine), Some(fault));
        assert_eq!(rig.iommu.take_fault(&mut rig.machine), None);
    }
}

#[test]
fn faults_interrupt_by_message_or_by_line() {
    let message = Message::new(2, 0x51);
    let mut rig = Rig::vtd(FakeVtd::new(true, false, 0));
    rig.iommu.enable_interrupt(&mut rig.machine, &rig.pci, message);
    let unit = rig.machine.vtd.as_ref().expect("it is there");
    assert_eq!([0x38, 0x3c, 0x40, 0x44].map(|at| unit.read(vtd::BASE + at, 4)), [0, 0x51, 0xfee0_2000, 0]);

    let mut rig = Rig::virtio();
    let table = rig.pci.remapper().expect("it is there").bars[1].base;
    rig.iommu.enable_interrupt(&mut rig.machine, &rig.pci, message);
    assert_eq!([0, 4, 8, 12].map(|at| rig.machine.read32(table + at)), [0xfee0_2000, 0, 0x51, 0]);

    // As QEMU has it: without MSI-X.
    let mut machine = FakeMachine::new();
    let mut function = FakeFunction::virtio(0x1057, false);
    function.config[0x34] = 0x90;
    let number = machine.pci.add(None, 4, 0, function);
    machine.virtio_iommu = Some(FakeVirtioIommu::new((number, 4), FIRST_ENDPOINT));
    let mut rig = Rig::start(machine, virtio_tables()).expect("it starts");
    assert_eq!(rig.machine.pci.get(number).half(4), 0x406);
    rig.iommu.enable_interrupt(&mut rig.machine, &rig.pci, message);
    assert_eq!(rig.machine.pci.get(number).half(4), 0x6, "the line is enabled");
    let registers = &rig.machine.io_apic.0;
    for line in 16..24 {
        let entry = [registers[&(0x10 + 2 * line)], registers[&(0x11 + 2 * line)]];
        assert_eq!(entry, [0x8051, 2 << 24]);
    }
    assert_eq!(rig.tables.io_apic, Some(IO_APIC));
}

/// What the kernel does, given as indices into the small tables below.
#[derive(Clone, Copy, Debug)]
enum Action {
    Attach { device: usize, domain: usize },
    Detach { device: usize },
    Grant { domain: usize, unit: usize },
    Release { domain: usize, unit: usize },
}

const DEVICES: [Address; 3] = [NET, DISK, Address::new(3, 0, 0)];
const DOMAINS: [usize; 3] = [0, 1, 63];
/// Units that grants are made of: first frame and size.
const UNITS: [(u64, PageSize); 7] = [
    (512, PageSize::Small),
    (513, PageSize::Small),
    (1023, PageSize::Small),
    (1024, PageSize::Large),
    (1 << 18, PageSize::Huge),
    (2 << 18, PageSize::Large),
    ((2 << 18) + 512, PageSize::Small),
];

fn action() -> impl Strategy<Value = Action> {
    let (device, domain, unit) = (0..DEVICES.len(), 0..DOMAINS.len(), 0..UNITS.len());
    prop_oneof![
        (device.clone(), domain.clone()).prop_map(|(device, domain)| Action::Attach { device, domain }),
        device.prop_map(|device| Action::Detach { device }),
        (domain.clone(), unit.clone()).prop_map(|(domain, unit)| Action::Grant { domain, unit }),
        (domain, unit).prop_map(|(domain, unit)| Action::Release { domain, unit }),
    ]
}

/// What must be so: which device is in which domain, which units each application was granted.
#[derive(Default)]
struct Model {
    domain_of: [Option<usize>; DEVICES.len()],
    grants: [BTreeSet<usize>; DOMAINS.len()],
}

impl Model {
    /// Carries an action out, as the kernel would, if it is one that the kernel could take now.
    fn act(&mut self, rig: &mut Rig, action: Action) -> Result<(), Error> {
        match action {
            Action::Attach { device, domain } if self.domain_of[device].is_none() => {
                let is_new = rig.attach(DEVICES[device], DOMAINS[domain])?;
                assert_eq!(is_new, !self.domain_of.contains(&Some(domain)));
                self.domain_of[device] = Some(domain);
                for unit in self.grants[domain].iter().filter(|_| is_new) {
                    rig.map(DOMAINS[domain], UNITS[*unit].0, UNITS[*unit].1, 1)?;
                }
            }
            Action::Detach { device } => {
                if let Some(domain) = self.domain_of[device].take() {
                    rig.detach(DEVICES[device], DOMAINS[domain])?;
                }
            }
            Action::Grant { domain, unit } if self.grants.iter().all(|grants| !grants.contains(&unit)) => {
                rig.map(DOMAINS[domain], UNITS[unit].0, UNITS[unit].1, 1)?;
                self.grants[domain].insert(unit);
            }
            Action::Release { domain, unit } if self.grants[domain].remove(&unit) => {
                rig.unmap(DOMAINS[domain], UNITS[unit].0, UNITS[unit].1, 1)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn reaches(&self, device: usize, frame: u64) -> bool {
        self.domain_of[device].is_some_and(|domain| {
            self.grants[domain].iter().any(|unit| {
                let (start, size) = UNITS[*unit];
                (start..start + size.frames()).contains(&frame)
            })
        })
    }

    /// Compares every device's reach at the edges of every unit; what a unit caches stays in its caches.
    fn check(&self, rig: &mut Rig) -> Result<(), TestCaseError> {
        for (index, device) in DEVICES.into_iter().enumerate() {
            for (start, size) in UNITS {
                for frame in [start - 1, start, start + size.frames() - 1, start + size.frames()] {
                    prop_assert_eq!(rig.reaches(device, frame), self.reaches(index, frame));
                }
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn devices_reach_what_their_owners_hold_after_any_sequence(
        kind in 0_usize..3,
        actions in prop::collection::vec(action(), 1..60),
    ) {
        let [first, second, third] = rigs();
        let mut rigs = [Some(first), Some(second), Some(third)];
        let mut rig = rigs[kind].take().expect("one of three");
        let start = rig.free();
        let mut model = Model::default();
        for action in actions {
            prop_assert_eq!(model.act(&mut rig, action), Ok(()));
            model.check(&mut rig)?;
        }
        for device in 0..DEVICES.len() {
            prop_assert_eq!(model.act(&mut rig, Action::Detach { device }), Ok(()));
        }
        model.check(&mut rig)?;
        prop_assert_eq!(rig.free(), start, "tables go back");
    }
}

/// What lies above 4 GiB is told in full (VIRTIO 1.2, section 5.13.6.5): both ends, and where it goes.
#[test]
fn a_request_names_addresses_above_four_gigabytes() {
    let frames = 0x12_3456_7000 >> 12..0x12_3456_9000 >> 12;
    let map = request::Request::map(7, frames.clone());
    let double = |at: usize| u64::from_le_bytes(map.bytes[at..at + 8].try_into().expect("eight bytes"));
    assert_eq!((map.bytes[0], map.bytes[4], map.length), (3, 7, 36));
    assert_eq!([double(8), double(16), double(24)], [0x12_3456_7000, 0x12_3456_8fff, 0x12_3456_7000]);
    let unmap = request::Request::unmap(7, frames);
    assert_eq!(unmap.bytes[8..24], map.bytes[8..24]);
}

#[test]
fn a_device_that_cannot_be_attached_takes_nothing_from_those_that_are() {
    let mut rig = Rig::vtd(FakeVtd::new(true, true, 3));
    assert_eq!(rig.attach(NET, 0), Ok(true));
    assert_eq!(rig.map(0, 100, PageSize::Small, 1), Ok(()));
    let held = rig.frames.held(Owner::dma(app(0)));
    assert_eq!(rig.attach(Address::new(200, 0, 0), 0), Err(Error::NotCovered));
    assert_eq!(rig.frames.held(Owner::dma(app(0))), held);
    assert!(rig.reaches(NET, 100));
}

#[test]
fn what_a_silent_unit_was_told_of_is_nobodys() {
    let mut rig = Rig::vtd(FakeVtd::new(true, true, 3).remembering_what_is_absent());
    rig.machine.vtd.as_mut().expect("it is there").is_dead = true;
    assert_eq!(rig.attach(NET, 0), Err(Error::Silent));
    assert!(rig.frames.held(Owner::dma(app(0))) > 0, "it may read its table yet");
}
