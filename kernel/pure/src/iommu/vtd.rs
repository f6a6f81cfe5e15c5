//! Intel VT-d: tables in memory. Source: Intel Virtualization Technology for Directed I/O 3.3.

/// A running VT-d unit.
#[derive(Debug)]
pub struct Vtd {}
