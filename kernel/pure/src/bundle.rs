//! Checks a bundle ([`nom_abi::image`]) once, so that nothing that is read from it later can surprise.

use core::fmt;
use nom_abi::image::{ApplicationRecord, ChannelRecord, DeviceSelector, Run, SegmentRecord};

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
        todo!()
    }
}

impl core::error::Error for BundleError {}

/// A bundle that has been checked.
#[derive(Clone, Copy, Debug)]
pub struct BundleView<'b> {
    bytes: &'b [u8],
}

impl<'b> BundleView<'b> {
    /// Checks the bundle at the start of `bytes`, which may be longer.
    pub fn parse(bytes: &'b [u8]) -> Result<BundleView<'b>, BundleError> {
        todo!()
    }

    /// The bundle's own bytes.
    pub fn bytes(self) -> &'b [u8] {
        self.bytes
    }

    /// The applications, in order of their index.
    pub fn applications(self) -> impl ExactSizeIterator<Item = ApplicationRecord> + Clone + use<'b> {
        [].into_iter()
    }

    /// The application with this index, if there is one.
    pub fn application(self, index: usize) -> Option<ApplicationRecord> {
        todo!()
    }

    /// The channels, in order of their index.
    pub fn channels(self) -> impl ExactSizeIterator<Item = ChannelRecord> + Clone + use<'b> {
        [].into_iter()
    }

    /// The segments of one of its applications, by ascending address.
    pub fn segments(
        self,
        application: &ApplicationRecord,
    ) -> impl ExactSizeIterator<Item = SegmentRecord> + Clone + use<'b> {
        [].into_iter()
    }

    /// The device selectors of one of its applications.
    pub fn devices(
        self,
        application: &ApplicationRecord,
    ) -> impl ExactSizeIterator<Item = DeviceSelector> + Clone + use<'b> {
        [].into_iter()
    }

    /// The kernel's own symbol table, for [`crate::symbols::lookup`].
    pub fn kernel_symbols(self) -> &'b [u8] {
        todo!()
    }

    /// The bytes of a run of bytes: an application's arguments, environment or symbol table.
    pub fn run(self, run: Run) -> &'b [u8] {
        todo!()
    }

    /// The contents of a segment; they start at offset `segment.file_offset` of the bundle.
    pub fn contents(self, segment: &SegmentRecord) -> &'b [u8] {
        todo!()
    }
}

/// Name of an application.
pub fn name(application: &ApplicationRecord) -> &str {
    todo!()
}
