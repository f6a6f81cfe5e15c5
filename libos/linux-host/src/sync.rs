//! A mutual exclusion lock for cores of one program, which are threads here.

/// A value that one core at a time can reach.
pub use parking_lot::Mutex;
/// The lock alone, for types that take any kind.
pub use parking_lot::RawMutex as RawLock;
