//! What must hold of each part of a bundle.

use super::{BundleError, BundleView, Part, name};
use nom_abi::Protection;
use nom_abi::image::{
    ApplicationRecord, Bundle, ChannelRecord, DeviceSelector, MAGIC, Run, SegmentRecord, SymbolRecord,
    SymbolTable, flag,
};
use nom_abi::layout::{
    APPLICATIONS_MAX, CHANNEL_STRIDE, CHANNELS_MAX, CORES_MAX, PLACEMENT_ALIGN, WINDOW_BYTES,
};
use nom_abi::memory::FRAME_BYTES;
use nom_abi::start::{START_BYTES_MAX, Start};
use nom_abi::syscall::Syscall;
use zerocopy::FromBytes;

type Check = Result<(), BundleError>;

/// Most bytes of an image or a stack: its window with room for guards on both sides.
const PLACED_MAX: u64 = WINDOW_BYTES - 2 * PLACEMENT_ALIGN;
/// Largest share weight.
const WEIGHT_MAX: u32 = crate::wfq::WEIGHT_MAX;
/// Largest PCI class code; also the one that stands for any.
const CLASS_MAX: u32 = 0xff_ffff;

impl Part {
    fn require(self, holds: bool, field: &'static str, expected: &'static str) -> Check {
        if holds { Ok(()) } else { Err(BundleError { part: self, field, expected }) }
    }
}

/// The header, but for its tables.
pub(super) fn header(bytes: &[u8]) -> Result<Bundle, BundleError> {
    let damaged = BundleError { part: Part::Header, field: "bytes", expected: "a whole header" };
    let (header, _) = Bundle::read_from_prefix(bytes).map_err(|_| damaged)?;
    let require = |holds, field, expected| Part::Header.require(holds, field, expected);
    require(header.magic == MAGIC, "magic", "the bytes \"nombundl\"")?;
    require(header.version == nom_abi::VERSION, "version", "the version that this kernel was built for")?;
    let whole = size_of::<Bundle>() <= header.bytes as usize && header.bytes as usize <= bytes.len();
    require(whole, "bytes", "no more than the bytes that are there")?;
    Ok(header)
}

/// The tables that the header names.
pub(super) fn tables(view: BundleView<'_>) -> Check {
    let header = &view.header;
    table::<ApplicationRecord>(view, Part::Header, header.applications, "applications")?;
    table::<ChannelRecord>(view, Part::Header, header.channels, "channels")?;
    symbols(view, Part::Header, header.symbols)?;
    let applications = (1..=APPLICATIONS_MAX).contains(&view.applications().len());
    Part::Header.require(applications, "applications", "1 to 64 of them")?;
    let publishers = view.applications().filter(|app| app.flags & flag::PUBLISHES_PRICES != 0);
    Part::Header.require(publishers.count() <= 1, "applications", "at most one that publishes prices")?;
    let channels = view.channels().len() <= CHANNELS_MAX;
    Part::Header.require(channels, "channels", "at most 64 of them")
}

/// One application with all that belongs to it.
pub(super) fn application(view: BundleView<'_>, index: usize) -> Check {
    let part = Part::Application(index);
    let app = &view.application(index).expect("the caller counted them");
    application_name(view, index, app)?;
    limits(view, part, app)?;

    table::<SegmentRecord>(view, part, app.segments, "segments")?;
    table::<DeviceSelector>(view, part, app.devices, "devices")?;
    strings(view, part, app.arguments, "arguments")?;
    strings(view, part, app.environment, "environment")?;
    let start_bytes = size_of::<Start>() as u64 + u64::from(app.arguments.count);
    let start_fits = start_bytes + u64::from(app.environment.count) <= START_BYTES_MAX as u64;
    part.require(start_fits, "environment", "a start page, arguments and environment of at most 64 KiB")?;
    symbols(view, part, app.symbols)?;

    segments(view, index, app)?;
    for (selector, device) in view.devices(app).enumerate() {
        let part = Part::Device(index, selector);
        part.require(device.class <= CLASS_MAX, "class", "at most 24 bits")?;
    }
    Ok(())
}

fn application_name(view: BundleView<'_>, index: usize, app: &ApplicationRecord) -> Check {
    let part = Part::Application(index);
    let name = name(app);
    part.require(!name.is_empty(), "name", "UTF-8 and not empty")?;
    let padding = &app.name[name.len()..];
    part.require(padding.iter().all(|byte| *byte == 0), "name", "UTF-8, then zeros")?;
    let unique = view.applications().take(index).all(|other| other.name != app.name);
    part.require(unique, "name", "a name that no application before it has")
}

fn limits(view: BundleView<'_>, part: Part, app: &ApplicationRecord) -> Check {
    let require = |holds, field, expected| part.require(holds, field, expected);
    let placed = |bytes: u64| is_pages(bytes) && bytes <= PLACED_MAX;
    require(placed(app.image_bytes), "image_bytes", "whole pages, more than none, inside a window of 1 TiB")?;
    require(placed(app.stack_bytes), "stack_bytes", "whole pages, more than none, inside a window of 1 TiB")?;
    require(app.frames_max > 0, "frames_max", "at least 1")?;
    require((1..=CORES_MAX as u32).contains(&app.cores_max), "cores_max", "1 to 64")?;
    require((1..=WEIGHT_MAX).contains(&app.weight), "weight", "1 to 10,000")?;
    let absent = !0_u64 << (view.applications().len() - 1) << 1;
    require(app.manages & absent == 0, "manages", "applications of this bundle")?;
    require(app.flags & !flag::ALL == 0, "flags", "known flags")?;
    require(app.calls & !Syscall::EVERY == 0, "calls", "known calls")
}

fn segments(view: BundleView<'_>, index: usize, app: &ApplicationRecord) -> Check {
    let mut lowest = 0;
    let mut has_entry = false;
    for (number, segment) in view.segments(app).enumerate() {
        let part = Part::Segment(index, number);
        let protection = segment_fields(part, &segment)?;
        part.require(segment.address >= lowest, "address", "addresses that ascend and do not overlap")?;
        let end = segment.address.checked_add(segment.memory_bytes).filter(|end| *end <= app.image_bytes);
        part.require(end.is_some(), "memory_bytes", "a segment inside the image")?;
        lowest = end.unwrap_or(lowest);
        segment_contents(view, part, &segment, protection)?;
        has_entry |= protection.executable() && (segment.address..lowest).contains(&app.entry);
    }
    Part::Application(index).require(has_entry, "entry", "an address in an executable segment")
}

fn segment_fields(part: Part, segment: &SegmentRecord) -> Result<Protection, BundleError> {
    part.require(segment.address.is_multiple_of(FRAME_BYTES), "address", "a multiple of 4096")?;
    part.require(is_pages(segment.memory_bytes), "memory_bytes", "whole pages, more than none")?;
    part.require(segment.reserved == 0, "reserved", "zero")?;
    let protection = Protection::from_code(segment.protection.into()).ok();
    protection.filter(|protection| *protection != Protection::None).ok_or(BundleError {
        part,
        field: "protection",
        expected: "read, read and write, or read and execute",
    })
}

fn segment_contents(view: BundleView<'_>, part: Part, of: &SegmentRecord, protection: Protection) -> Check {
    let bytes = u64::from(of.file_bytes);
    part.require(bytes <= of.memory_bytes, "file_bytes", "at most memory_bytes")?;
    let page_aligned = u64::from(of.file_offset).is_multiple_of(FRAME_BYTES);
    part.require(page_aligned, "file_offset", "a multiple of 4096")?;
    // What is mapped in place must not show a neighbour's bytes.
    let mapped = if protection.writable() { bytes } else { bytes.next_multiple_of(FRAME_BYTES) };
    let contents = view.slice(of.file_offset, mapped as usize);
    part.require(contents.is_some(), "file_bytes", "contents inside the bundle")?;
    let padding = contents.unwrap_or_default().iter().skip(bytes as usize);
    part.require(padding.copied().all(|byte| byte == 0), "file_bytes", "zeros to the end of the page")
}

/// One channel.
pub(super) fn channel(view: BundleView<'_>, index: usize) -> Check {
    let part = Part::Channel(index);
    let channel = view.channels().nth(index).expect("the caller counted them");
    let applications = view.applications().len();
    let known = channel.ends.iter().all(|end| (*end as usize) < applications);
    part.require(known, "ends", "applications of this bundle")?;
    part.require(channel.ends[0] != channel.ends[1], "ends", "two different applications")?;
    let fits = is_pages(channel.bytes) && channel.bytes <= CHANNEL_STRIDE;
    part.require(fits, "bytes", "whole pages, more than none, at most 1 GiB")
}

/// A run of records: aligned and inside the bundle.
fn table<T>(view: BundleView<'_>, part: Part, run: Run, field: &'static str) -> Check {
    let aligned = (run.offset as usize).is_multiple_of(align_of::<T>());
    part.require(aligned, field, "an offset aligned to its records")?;
    let inside = view.slice(run.offset, run.count as usize * size_of::<T>()).is_some();
    part.require(inside, field, "records inside the bundle")
}

/// A run of NUL-terminated strings.
fn strings(view: BundleView<'_>, part: Part, run: Run, field: &'static str) -> Check {
    table::<u8>(view, part, run, field)?;
    let bytes = view.run(run);
    part.require(bytes.last().is_none_or(|last| *last == 0), field, "strings that end with a zero byte")?;
    part.require(core::str::from_utf8(bytes).is_ok(), field, "UTF-8")
}

/// A symbol table: absent, or as long as its header says.
fn symbols(view: BundleView<'_>, part: Part, run: Run) -> Check {
    table::<u8>(view, part, run, "symbols")?;
    if run.count == 0 {
        return Ok(());
    }
    let length = SymbolTable::read_from_prefix(view.run(run)).ok().map(|(header, _)| {
        let entries = u64::from(header.symbols) * size_of::<SymbolRecord>() as u64;
        size_of::<SymbolTable>() as u64 + entries + u64::from(header.names)
    });
    let inside = length.is_some_and(|length| length <= run.count.into());
    part.require(inside, "symbols", "symbols and names inside their run")
}

/// Whether a length is whole pages, at least one.
fn is_pages(bytes: u64) -> bool {
    bytes > 0 && bytes.is_multiple_of(FRAME_BYTES)
}
