//! Measures nom, and Linux beside it in the same run, and says what came out.
#![forbid(unsafe_code)]

pub mod boot;
