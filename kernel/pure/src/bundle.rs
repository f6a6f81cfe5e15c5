//! Checks a bundle ([`nom_abi::image`]) once, so that nothing that is read from it later can surprise.

mod check;
#[cfg(test)]
mod tests;

use core::fmt;
use nom_abi::image::{ApplicationRecord, Bundle, ChannelRecord, DeviceSelector, Run, SegmentRecord};
use zerocopy::FromBytes;

/// Which part of a bundle is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The header.
    Header,
    /// An application, by index.
    Application(usize),
    /// A segment of an application: (application, segment).
    Segment(usize, usize),
    /// A device selector of an application: (application, selector).
    Device(usize, usize),
    /// A channel, by index.
    Channel(usize),
}

/// Why a bundle cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BundleError {
    /// The part.
    pub part: Part,
    /// Its field, as named in [`nom_abi::image`].
    pub field: &'static str,
    /// What the field should have been.
    pub expected: &'static str,
}

impl fmt::Display for BundleError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}: {}: expected {}", self.part, self.field, self.expected)
    }
}

/// A bundle that has been checked.
#[derive(Clone, Copy, Debug)]
pub struct BundleView<'b> {
    bytes: &'b [u8],
    header: Bundle,
}

impl<'b> BundleView<'b> {
    /// Checks the bundle at the start of `bytes`, which may be longer.
    pub fn parse(bytes: &'b [u8]) -> Result<BundleView<'b>, BundleError> {
        let header = check::header(bytes)?;
        let view = BundleView { bytes: &bytes[..header.bytes as usize], header };
        check::tables(view)?;
        for index in 0..view.applications().len() {
            check::application(view, index)?;
        }
        for index in 0..view.channels().len() {
            check::channel(view, index)?;
        }
        Ok(view)
    }

    /// The bundle's own bytes.
    pub fn bytes(self) -> &'b [u8] {
        self.bytes
    }

    /// The applications, in order of their index.
    pub fn applications(self) -> impl ExactSizeIterator<Item = ApplicationRecord> + Clone + use<'b> {
        self.records(self.header.applications)
    }

    /// The application with this index, if there is one.
    pub fn application(self, index: usize) -> Option<ApplicationRecord> {
        self.applications().nth(index)
    }

    /// The channels, in order of their index.
    pub fn channels(self) -> impl ExactSizeIterator<Item = ChannelRecord> + Clone + use<'b> {
        self.records(self.header.channels)
    }

    /// The segments of one of its applications, by ascending address.
    pub fn segments(
        self,
        application: &ApplicationRecord,
    ) -> impl ExactSizeIterator<Item = SegmentRecord> + Clone + use<'b> {
        self.records(application.segments)
    }

    /// The device selectors of one of its applications.
    pub fn devices(
        self,
        application: &ApplicationRecord,
    ) -> impl ExactSizeIterator<Item = DeviceSelector> + Clone + use<'b> {
        self.records(application.devices)
    }

    /// The kernel's own symbol table, for [`crate::symbols::lookup`].
    pub fn kernel_symbols(self) -> &'b [u8] {
        self.run(self.header.symbols)
    }

    /// The bytes of a run of bytes: an application's arguments, environment or symbol table.
    pub fn run(self, run: Run) -> &'b [u8] {
        self.slice(run.offset, run.count as usize).unwrap_or_default()
    }

    /// The contents of a segment; they start at offset `segment.file_offset` of the bundle.
    pub fn contents(self, segment: &SegmentRecord) -> &'b [u8] {
        self.slice(segment.file_offset, segment.file_bytes as usize).unwrap_or_default()
    }

    /// The records of a table. They are read one by one, so the bundle may lie anywhere in memory.
    fn records<T: FromBytes>(self, run: Run) -> impl ExactSizeIterator<Item = T> + Clone + use<'b, T> {
        let bytes = self.slice(run.offset, run.count as usize * size_of::<T>()).unwrap_or_default();
        let read = |chunk| T::read_from_bytes(chunk).expect("a chunk is as long as a record");
        bytes.chunks_exact(size_of::<T>()).map(read)
    }

    fn slice(self, offset: u32, length: usize) -> Option<&'b [u8]> {
        self.bytes.get(offset as usize..)?.get(..length)
    }
}

/// Name of an application.
pub fn name(application: &ApplicationRecord) -> &str {
    let bytes = application.name.split(|byte| *byte == 0).next().unwrap_or_default();
    core::str::from_utf8(bytes).unwrap_or_default()
}
