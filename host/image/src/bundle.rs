//! Writes the bundle, see [`nom_abi::image`].

use crate::error::{Error, Result};
use crate::lower::{Lowered, LoweredApplication};
use crate::program::Segment;
use crate::symbols::{SymbolTable, Symbols};
use nom_abi::image::{
    ApplicationRecord, Bundle, ChannelRecord, DeviceSelector, MAGIC, Run, SegmentRecord, flag,
};
use nom_abi::memory::FRAME_BYTES;
use std::collections::HashMap;
use zerocopy::{Immutable, IntoBytes};

const PAGE: usize = FRAME_BYTES as usize;
/// Alignment of strings and symbol tables.
const DATA_ALIGN: usize = 4;

/// A bundle as the kernel finds it.
pub(crate) struct Encoded {
    pub bytes: Vec<u8>,
    /// Bytes before the first segment's contents, without symbol tables.
    pub tables_bytes: usize,
    /// Bytes of all symbol tables.
    pub symbols_bytes: usize,
}

/// The bundle of these applications with the kernel's symbol table.
pub(crate) fn encode(lowered: &Lowered, kernel: &SymbolTable, symbols: Symbols) -> Result<Encoded> {
    let tables = Tables::place(lowered);
    let mut data = Pool::new(tables.end, DATA_ALIGN);
    let texts: Vec<Texts> = lowered.applications.iter().map(|app| Texts::add(app, &mut data)).collect();
    let before_symbols = data.end();
    let mut add_symbols = |table: &SymbolTable| match symbols {
        Symbols::Keep => data.run(&table.encode()),
        Symbols::Omit => Run::default(),
    };
    let kernel_symbols = add_symbols(kernel);
    let symbols: Vec<Run> =
        lowered.applications.iter().map(|app| add_symbols(&app.program.symbols)).collect();
    let contents = add_contents(lowered, data.end().next_multiple_of(PAGE));
    let applications = applications(lowered, &tables, &texts, &symbols);

    let header = Bundle {
        magic: MAGIC,
        version: nom_abi::VERSION,
        bytes: total(contents.end())?,
        applications: run(tables.applications, lowered.applications.len()),
        channels: run(tables.channels, channels(lowered).count()),
        symbols: kernel_symbols,
    };
    let (tables_bytes, symbols_bytes) = (before_symbols, data.end() - before_symbols);
    let mut bytes = header.as_bytes().to_vec();
    extend(&mut bytes, applications);
    extend(&mut bytes, channels(lowered));
    extend(&mut bytes, segments(lowered).map(|segment| segment_record(segment, &contents)));
    extend(&mut bytes, devices(lowered));
    bytes.extend_from_slice(&data.bytes);
    bytes.resize(contents.base, 0);
    bytes.extend_from_slice(&contents.bytes);
    Ok(Encoded { bytes, tables_bytes, symbols_bytes })
}

/// The bundle's size, to which every offset and count in it is smaller.
fn total(bytes: usize) -> Result<u32> {
    let too_large = |_| Error::TooLarge(format!("the bundle takes {bytes} bytes, expected less than 4 GiB"));
    u32::try_from(bytes).map_err(too_large)
}

fn run(offset: usize, count: usize) -> Run {
    Run { offset: offset as u32, count: count as u32 }
}

fn extend<T: IntoBytes + Immutable>(bytes: &mut Vec<u8>, records: impl IntoIterator<Item = T>) {
    records.into_iter().for_each(|record| bytes.extend_from_slice(record.as_bytes()));
}

/// Where the tables of records start.
struct Tables {
    applications: usize,
    channels: usize,
    segments: usize,
    devices: usize,
    end: usize,
}

impl Tables {
    fn place(lowered: &Lowered) -> Tables {
        let applications = size_of::<Bundle>();
        let channels = applications + lowered.applications.len() * size_of::<ApplicationRecord>();
        let segments = channels + self::channels(lowered).count() * size_of::<ChannelRecord>();
        let devices = segments + self::segments(lowered).count() * size_of::<SegmentRecord>();
        let end = devices + self::devices(lowered).count() * size_of::<DeviceSelector>();
        Tables { applications, channels, segments, devices, end }
    }
}

fn channels(lowered: &Lowered) -> impl Iterator<Item = ChannelRecord> {
    lowered.applications.iter().zip(0..).flat_map(|(app, first)| {
        let record = move |peer: &crate::manifest::Peer| ChannelRecord {
            ends: [first, peer.application as u32],
            bytes: peer.bytes,
        };
        app.manifest.peers.iter().map(record)
    })
}

fn segments(lowered: &Lowered) -> impl Iterator<Item = &Segment> {
    lowered.applications.iter().flat_map(LoweredApplication::segments)
}

fn devices(lowered: &Lowered) -> impl Iterator<Item = DeviceSelector> {
    lowered.applications.iter().flat_map(|app| app.manifest.devices.iter().copied())
}

/// An application's arguments and environment.
struct Texts {
    arguments: Run,
    environment: Run,
}

impl Texts {
    fn add(app: &LoweredApplication, data: &mut Pool) -> Texts {
        Texts {
            arguments: data.run(&app.manifest.argument_bytes()),
            environment: data.run(&app.manifest.environment_bytes()),
        }
    }
}

/// Contents of all segments, those that are mapped in place first: they fill their last page anyway.
fn add_contents(lowered: &Lowered, base: usize) -> Pool {
    let mut contents = Pool::new(base, PAGE);
    for writable in [false, true] {
        for segment in segments(lowered).filter(|segment| segment.protection.writable() == writable) {
            contents.add(&segment.contents);
        }
    }
    contents
}

fn segment_record(segment: &Segment, contents: &Pool) -> SegmentRecord {
    SegmentRecord {
        address: segment.address,
        memory_bytes: segment.memory_bytes,
        file_offset: contents.offset(&segment.contents) as u32,
        file_bytes: segment.contents.len() as u32,
        protection: segment.protection as u32,
        reserved: 0,
    }
}

fn applications(
    lowered: &Lowered,
    tables: &Tables,
    texts: &[Texts],
    symbols: &[Run],
) -> Vec<ApplicationRecord> {
    let (mut segments, mut devices) = (tables.segments, tables.devices);
    let rows = lowered.applications.iter().zip(texts).zip(symbols);
    rows.map(|((app, texts), &symbols)| ApplicationRecord {
        segments: take::<SegmentRecord>(&mut segments, app.segments().count()),
        devices: take::<DeviceSelector>(&mut devices, app.manifest.devices.len()),
        arguments: texts.arguments,
        environment: texts.environment,
        symbols,
        ..limits(app)
    })
    .collect()
}

/// The next `count` records of a table of which everything before `next` is taken.
fn take<T>(next: &mut usize, count: usize) -> Run {
    let offset = *next;
    *next += count * size_of::<T>();
    run(offset, count)
}

/// The part of an application's record that needs no offsets.
fn limits(app: &LoweredApplication) -> ApplicationRecord {
    let LoweredApplication { manifest, program, .. } = app;
    let mut name = [0; 32];
    name[..manifest.name.len()].copy_from_slice(manifest.name.as_bytes());
    let flag_if = |set: bool, flag: u32| if set { flag } else { 0 };
    ApplicationRecord {
        name,
        entry: program.entry,
        image_bytes: app.image_bytes(),
        stack_bytes: manifest.stack,
        frames_max: manifest.memory / FRAME_BYTES,
        manages: manifest.manages.iter().fold(0, |bits, number| bits | 1 << number),
        cores_max: manifest.cores,
        weight: manifest.weight,
        flags: flag_if(manifest.autostart, flag::AUTOSTART)
            | flag_if(manifest.essential, flag::ESSENTIAL)
            | flag_if(manifest.publishes_prices, flag::PUBLISHES_PRICES)
            | flag_if(manifest.makes_code, flag::MAKES_CODE)
            | flag_if(manifest.monitors, flag::MONITORS),
        calls: manifest.calls.unwrap_or(program.calls),
        segments: Run::default(),
        devices: Run::default(),
        arguments: Run::default(),
        environment: Run::default(),
        symbols: Run::default(),
    }
}

/// Runs of bytes from offset `base` on, equal ones only once: an application that is there twice brings
/// its program once.
struct Pool {
    base: usize,
    align: usize,
    bytes: Vec<u8>,
    known: HashMap<Vec<u8>, usize>,
}

impl Pool {
    fn new(base: usize, align: usize) -> Pool {
        Pool { base, align, bytes: Vec::new(), known: HashMap::new() }
    }

    fn end(&self) -> usize {
        self.base + self.bytes.len()
    }

    fn add(&mut self, bytes: &[u8]) {
        if bytes.is_empty() || self.known.contains_key(bytes) {
            return;
        }
        let offset = self.end().next_multiple_of(self.align);
        self.bytes.resize(offset - self.base, 0);
        self.bytes.extend_from_slice(bytes);
        self.known.insert(bytes.to_vec(), offset);
    }

    /// Offset of bytes that were added; 0 for none.
    fn offset(&self, bytes: &[u8]) -> usize {
        self.known.get(bytes).copied().unwrap_or(0)
    }

    fn run(&mut self, bytes: &[u8]) -> Run {
        self.add(bytes);
        run(self.offset(bytes), bytes.len())
    }
}
