//! What the applications under `src/bin` share: they run in a machine and check the kernel from ring 3.
//!
//! Each prints `ok NAME` or `FAILED NAME: why` for every check and ends with status 0 if all were ok. The
//! bundles beside this crate say which of them run together; `tests/system` boots those and judges.
//!
//! This crate may be unsafe: it does on purpose what a program must not do ([`misdeeds`], [`border`]),
//! calls the kernel with arguments that no safe type would let through, and drives devices ([`entropy`],
//! [`educational`]).
#![no_std]

extern crate alloc;

pub mod border;
pub mod educational;
pub mod entropy;
pub mod line;
pub mod misdeeds;
pub mod processors;
pub mod report;
pub mod workshop;

pub use report::{Check, Failure, accounted_frames, comes_true, expect, expect_taken_back, expect_that, run};
