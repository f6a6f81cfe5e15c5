use super::*;
use crate::testing::cases;
use nom_abi::Protection;
use nom_abi::image::{MAGIC, SymbolRecord, SymbolTable, flag};
use nom_abi::layout::{CHANNEL_STRIDE, WINDOW_BYTES};
use nom_abi::start::{START_BYTES_MAX, Start};
use nom_abi::syscall::Syscall;
use proptest::prelude::*;
use zerocopy::{Immutable, IntoBytes};

const PAGE: usize = 4096;
const APPLICATIONS: usize = size_of::<Bundle>();
const CHANNELS: usize = APPLICATIONS + 2 * size_of::<ApplicationRecord>();

/// What a valid bundle of two applications is made of; a test changes a part before it is put together.
#[derive(Clone)]
struct Parts {
    header: Bundle,
    applications: [ApplicationRecord; 2],
    channels: [ChannelRecord; 1],
    segments: [SegmentRecord; 3],
    devices: [DeviceSelector; 2],
    strings: Vec<u8>,
    symbols: Vec<u8>,
    contents: Vec<u8>,
}

impl Parts {
    const SEGMENTS: u32 = (CHANNELS + size_of::<ChannelRecord>()) as u32;
    const DEVICES: u32 = Self::SEGMENTS + 3 * size_of::<SegmentRecord>() as u32;
    const STRINGS: u32 = Self::DEVICES + 2 * size_of::<DeviceSelector>() as u32;
    const STRING_BYTES: u32 = 21;
    const SYMBOLS: u32 = Self::STRINGS + Self::STRING_BYTES;

    fn valid() -> Parts {
        let symbols = symbols();
        let symbol_run = Run { offset: Self::SYMBOLS, count: symbols.len() as u32 };
        let run = |offset, count| Run { offset, count };
        let application = |name: &[u8], segments, symbols| {
            let mut padded = [0; 32];
            padded[..name.len()].copy_from_slice(name);
            ApplicationRecord {
                name: padded,
                entry: 0x10,
                image_bytes: 0x4000,
                stack_bytes: 0x4000,
                frames_max: 100,
                manages: 0b10,
                cores_max: 1,
                weight: 100,
                flags: 1,
                calls: Syscall::EVERY,
                segments,
                devices: run(Self::DEVICES, 2),
                arguments: run(Self::STRINGS, 10),
                environment: run(Self::STRINGS + 10, 11),
                symbols,
            }
        };
        let segments =
            [segment(0, 1, PAGE as u32, 5), segment(0x2000, 2, 100, 3), segment(0, 1, PAGE as u32, 5)];
        Parts {
            header: Bundle {
                magic: MAGIC,
                version: nom_abi::VERSION,
                bytes: 4 * PAGE as u32,
                applications: run(APPLICATIONS as u32, 2),
                channels: run(CHANNELS as u32, 1),
                symbols: symbol_run,
            },
            applications: [
                application(b"hello", run(Self::SEGMENTS, 2), symbol_run),
                application("grüße".as_bytes(), run(Self::SEGMENTS + 64, 1), run(0, 0)),
            ],
            channels: [ChannelRecord { ends: [0, 1], bytes: 0x10000 }],
            segments,
            devices: [
                DeviceSelector { vendor: 0x1af4, device: 0x1041, class: 0xff_ffff },
                DeviceSelector { vendor: 0xffff, device: 0xffff, class: 0x02_0000 },
            ],
            strings: b"hello\0you\0LANG=de_DE\0".to_vec(),
            symbols,
            contents: [vec![0x90; PAGE], vec![7; 100], vec![0; 2 * PAGE - 100]].concat(),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.header.as_bytes().to_vec();
        let tables = [self.applications.as_bytes(), self.channels.as_bytes(), self.segments.as_bytes()];
        bytes.extend(tables.concat());
        bytes.extend_from_slice(self.devices.as_bytes());
        bytes.extend_from_slice(&self.strings);
        bytes.extend_from_slice(&self.symbols);
        bytes.resize(PAGE, 0);
        bytes.extend_from_slice(&self.contents);
        bytes
    }
}

/// A segment of two pages with contents at page `file_page` of the bundle.
fn segment(address: u64, file_page: u32, file_bytes: u32, protection: u32) -> SegmentRecord {
    let file_offset = file_page * PAGE as u32;
    SegmentRecord { address, memory_bytes: 0x2000, file_offset, file_bytes, protection, reserved: 0 }
}

fn symbols() -> Vec<u8> {
    let header = SymbolTable { symbols: 1, names: 5 };
    [header.as_bytes(), &[0; size_of::<SymbolRecord>()], b"main\0"].concat()
}

/// Reads all that can be read, and checks what a reader relies on.
fn read_all(view: BundleView<'_>) {
    crate::symbols::lookup(view.kernel_symbols(), 1);
    for (index, app) in view.applications().enumerate() {
        assert_eq!(view.application(index), Some(app));
        assert!(!name(&app).is_empty() && (1..=10_000).contains(&app.weight));
        crate::symbols::lookup(view.run(app.symbols), 1);
        for strings in [app.arguments, app.environment] {
            assert_eq!(view.run(strings).len(), strings.count as usize);
        }
        let (mut lowest, mut has_entry) = (0, false);
        for segment in view.segments(&app) {
            assert!(segment.address >= lowest);
            lowest = segment.address.checked_add(segment.memory_bytes).expect("an end");
            assert!(lowest <= app.image_bytes && lowest <= WINDOW_BYTES);
            assert!(u64::from(segment.file_bytes) <= segment.memory_bytes);
            assert_eq!(view.contents(&segment).len(), segment.file_bytes as usize);
            let protection = Protection::from_code(segment.protection.into()).expect("a protection");
            has_entry |= protection.executable() && (segment.address..lowest).contains(&app.entry);
        }
        assert!(has_entry);
        assert_eq!(view.devices(&app).count(), app.devices.count as usize);
    }
    assert_eq!(view.application(view.applications().len()), None);
    for channel in view.channels() {
        assert!(channel.ends.iter().all(|end| view.application(*end as usize).is_some()));
    }
}

#[test]
fn a_valid_bundle_shows_all_that_is_in_it() {
    let parts = Parts::valid();
    let mut bytes = parts.bytes();
    let length = bytes.len();
    bytes.extend_from_slice(b"what lies behind");
    let view = BundleView::parse(&bytes).unwrap();
    read_all(view);
    assert_eq!(view.bytes().len(), length);
    assert_eq!(view.applications().collect::<Vec<_>>(), parts.applications);
    assert_eq!(view.channels().collect::<Vec<_>>(), parts.channels);
    let [hello, other] = parts.applications;
    assert_eq!((name(&hello), name(&other)), ("hello", "grüße"));
    assert_eq!(view.segments(&hello).collect::<Vec<_>>(), parts.segments[..2]);
    assert_eq!(view.devices(&hello).collect::<Vec<_>>(), parts.devices);
    assert_eq!(view.run(hello.arguments), b"hello\0you\0");
    assert_eq!(view.run(hello.environment), b"LANG=de_DE\0");
    assert_eq!(view.contents(&parts.segments[1]), [7; 100]);
    assert_eq!(crate::symbols::lookup(view.kernel_symbols(), 3).unwrap().name, "main");
}

#[test]
fn a_bundle_need_not_be_aligned() {
    let bytes = [vec![0], Parts::valid().bytes()].concat();
    read_all(BundleView::parse(&bytes[1..]).unwrap());
}

#[test]
fn an_error_names_the_part_and_the_field() {
    let mut parts = Parts::valid();
    parts.applications[1].weight = 10_001;
    let error = BundleView::parse(&parts.bytes()).unwrap_err();
    assert_eq!(error.to_string(), "Application(1): weight: expected 1 to 10,000");
    parts.segments[1].protection = 7;
    let error = BundleView::parse(&parts.bytes()).unwrap_err();
    let text = "Segment(0, 1): protection: expected read, read and write, or read and execute";
    assert_eq!(error.to_string(), text);
    parts.header.version = nom_abi::VERSION - 1;
    let error = BundleView::parse(&parts.bytes()).unwrap_err();
    let text = "Header: version: expected the version that this kernel was built for";
    assert_eq!(error.to_string(), text);
}

/// The field that is made wrong, and how.
type Change = (&'static str, fn(&mut Parts));

/// Checks that each change to a valid bundle is refused for that field.
fn refused(part: Part, changes: &[Change]) {
    for (field, change) in changes {
        let mut parts = Parts::valid();
        change(&mut parts);
        let error = BundleView::parse(&parts.bytes()).expect_err(field);
        assert_eq!((error.part, error.field), (part, *field), "{error}");
    }
}

#[test]
fn headers_are_checked() {
    refused(
        Part::Header,
        &[
            ("magic", |p| p.header.magic += 1),
            ("version", |p| p.header.version += 1),
            ("bytes", |p| p.header.bytes += 1),
            ("bytes", |p| p.header.bytes = 39),
            ("applications", |p| p.header.applications.count = 0),
            ("applications", |p| p.header.applications.count = 65),
            ("applications", |p| p.header.applications.count = u32::MAX),
            ("applications", |p| p.header.applications.offset += 4),
            ("applications", |p| p.header.applications.offset = 4 * PAGE as u32),
            ("applications", |p| {
                p.applications.iter_mut().for_each(|app| app.flags = flag::PUBLISHES_PRICES)
            }),
            ("applications", |p| p.header.applications.offset = u32::MAX - 7),
            ("channels", |p| p.header.channels.count = 65),
            ("channels", |p| p.header.channels.offset += 1),
            ("symbols", |p| p.header.symbols.count = 7),
            ("symbols", |p| p.header.symbols.count -= 1),
            ("symbols", |p| p.header.symbols.offset = u32::MAX),
        ],
    );
    let valid = Parts::valid().bytes();
    for length in 0..size_of::<Bundle>() {
        let error = BundleView::parse(&valid[..length]).unwrap_err();
        assert_eq!((error.part, error.field), (Part::Header, "bytes"));
    }
}

#[test]
fn applications_are_checked() {
    refused(
        Part::Application(1),
        &[
            ("name", |p| p.applications[1].name = [0; 32]),
            ("name", |p| p.applications[1].name[0] = 0xff),
            ("name", |p| p.applications[1].name[20] = b'x'),
            ("name", |p| p.applications[1].name = p.applications[0].name),
            ("entry", |p| p.applications[1].entry = 0x2000),
            ("entry", |p| p.applications[1].segments.count = 0),
            ("entry", |p| p.segments[2].protection = 1),
            ("image_bytes", |p| p.applications[1].image_bytes = 0),
            ("image_bytes", |p| p.applications[1].image_bytes += 1),
            ("image_bytes", |p| p.applications[1].image_bytes = WINDOW_BYTES),
            ("stack_bytes", |p| p.applications[1].stack_bytes = 0),
            ("stack_bytes", |p| p.applications[1].stack_bytes += 16),
            ("stack_bytes", |p| p.applications[1].stack_bytes = u64::MAX - 4095),
            ("frames_max", |p| p.applications[1].frames_max = 0),
            ("manages", |p| p.applications[1].manages = 0b100),
            ("manages", |p| p.applications[1].manages = 1 << 63),
            ("cores_max", |p| p.applications[1].cores_max = 0),
            ("cores_max", |p| p.applications[1].cores_max = 65),
            ("weight", |p| p.applications[1].weight = 0),
            ("flags", |p| p.applications[1].flags = flag::ALL + 1),
            ("calls", |p| p.applications[1].calls = 1 << 31),
            ("segments", |p| p.applications[1].segments.offset += 4),
            ("segments", |p| p.applications[1].segments.count = u32::MAX),
            ("segments", |p| p.applications[1].segments.count = 2000),
            ("devices", |p| p.applications[1].devices.offset += 2),
            ("arguments", |p| p.applications[1].arguments.count -= 1),
            ("environment", |p| p.applications[1].environment.offset = 5 * PAGE as u32),
            ("symbols", |p| p.applications[1].symbols.count = 7),
        ],
    );
}

#[test]
fn strings_are_text_that_fits_behind_the_start_page() {
    refused(
        Part::Application(0),
        &[
            ("arguments", |p| p.strings[3] = 0xc0),
            ("environment", |p| {
                // The last 64 KiB of the bundle are zeros: empty strings.
                p.contents.resize(19 * PAGE, 0);
                p.header.bytes = 20 * PAGE as u32;
                p.applications[0].environment = Run { offset: 4 * PAGE as u32, count: 16 * PAGE as u32 };
            }),
        ],
    );
}

#[test]
fn a_start_page_is_full_to_the_last_byte_and_no_fuller() {
    let with_environment_of = |count| {
        let mut parts = Parts::valid();
        parts.contents.resize(19 * PAGE, 0);
        parts.header.bytes = 20 * PAGE as u32;
        parts.applications[0].environment = Run { offset: 4 * PAGE as u32, count };
        BundleView::parse(&parts.bytes()).map(|_| ()).map_err(|error| (error.part, error.field))
    };
    let arguments = Parts::valid().applications[0].arguments.count;
    let room = START_BYTES_MAX as u32 - size_of::<Start>() as u32 - arguments;
    assert_eq!(with_environment_of(room), Ok(()));
    assert_eq!(with_environment_of(room + 1), Err((Part::Application(0), "environment")));
}

#[test]
fn segments_are_checked() {
    refused(
        Part::Segment(0, 1),
        &[
            ("address", |p| p.segments[1].address = 0x1000),
            ("address", |p| p.segments[1].address += 1),
            ("memory_bytes", |p| p.segments[1].memory_bytes += 0x1000),
            ("memory_bytes", |p| p.segments[1].memory_bytes = 0),
            ("memory_bytes", |p| p.segments[1].memory_bytes = u64::MAX),
            ("memory_bytes", |p| p.segments[1].memory_bytes -= 1),
            ("reserved", |p| p.segments[1].reserved = 1),
            ("protection", |p| p.segments[1].protection = 0),
            ("protection", |p| p.segments[1].protection = 2),
            ("protection", |p| p.segments[1].protection = 7),
            ("file_offset", |p| p.segments[1].file_offset += 16),
            ("file_bytes", |p| p.segments[1].file_bytes = 0x2001),
            ("file_bytes", |p| (p.segments[1].file_offset, p.segments[1].file_bytes) = (PAGE as u32, 0x2001)),
            ("file_bytes", |p| p.segments[1].file_offset = 4 * PAGE as u32),
            ("file_bytes", |p| (p.segments[1].protection, p.contents[PAGE + 100]) = (1, 1)),
        ],
    );
}

#[test]
fn what_is_mapped_in_place_is_whole_pages_of_the_bundle() {
    let mut parts = Parts::valid();
    parts.segments[1].file_offset = 3 * PAGE as u32;
    let mut whole = parts.clone();
    whole.segments[1].protection = 1;
    read_all(BundleView::parse(&whole.bytes()).expect("zeros follow to the end of the page"));
    parts.header.bytes -= 1000;
    read_all(BundleView::parse(&parts.bytes()).unwrap());
    parts.segments[1].protection = 1;
    let error = BundleView::parse(&parts.bytes()).unwrap_err();
    assert_eq!((error.part, error.field), (Part::Segment(0, 1), "file_bytes"));
}

#[test]
fn devices_and_channels_are_checked() {
    refused(Part::Device(0, 1), &[("class", |p| p.devices[1].class = 0x100_0000)]);
    refused(
        Part::Channel(0),
        &[
            ("ends", |p| p.channels[0].ends = [0, 2]),
            ("ends", |p| p.channels[0].ends = [1, 1]),
            ("bytes", |p| p.channels[0].bytes = 0),
            ("bytes", |p| p.channels[0].bytes = 100),
            ("bytes", |p| p.channels[0].bytes = CHANNEL_STRIDE + 4096),
        ],
    );
}

/// Values that are likely to be just inside or outside of something.
fn word() -> impl Strategy<Value = u64> {
    let pages = (0..8_u64).prop_map(|pages| pages * 4096);
    let from_the_end = (1..4_u64).prop_map(|pages| (pages * 4096).wrapping_neg());
    prop_oneof![any::<u64>(), 0..20_u64, pages, from_the_end, Just(u64::MAX)]
}

/// Where there is damage, in words of four bytes: anywhere before the symbols, most often where segments say
/// what they are.
fn place() -> impl Strategy<Value = usize> {
    prop_oneof![
        0..Parts::SYMBOLS as usize / 4 - 1,
        (0..3_usize, 0..8_usize)
            .prop_map(|(segment, word)| Parts::SEGMENTS as usize / 4 + 8 * segment + word)
    ]
}

fn write_at<T: IntoBytes + Immutable>(bytes: &mut [u8], at: usize, value: &T) {
    bytes[at..at + size_of::<T>()].copy_from_slice(value.as_bytes());
}

proptest! {
    #![proptest_config(cases(3000))]

    #[test]
    fn a_damaged_bundle_is_refused_or_harmless(
        damage in prop::collection::vec((place(), word(), any::<bool>()), 1..4),
        length in prop_oneof![3 => Just(usize::MAX), 1 => 0..5 * PAGE],
    ) {
        let mut bytes = Parts::valid().bytes();
        for (at, value, long) in damage {
            if long {
                write_at(&mut bytes, at * 4, &value);
            } else {
                write_at(&mut bytes, at * 4, &(value as u32));
            }
        }
        let length = length.min(bytes.len());
        if let Ok(view) = BundleView::parse(&bytes[..length]) {
            read_all(view);
        }
    }

    #[test]
    fn any_bytes_are_refused_or_harmless(mut bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        if bytes.len() >= 12 {
            write_at(&mut bytes, 0, &MAGIC);
            write_at(&mut bytes, 8, &nom_abi::VERSION);
        }
        if let Ok(view) = BundleView::parse(&bytes) {
            read_all(view);
        }
    }
}
