//! Threads that block, on top of the loop.

pub mod policy;
