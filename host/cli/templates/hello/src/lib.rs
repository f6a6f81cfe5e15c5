//! What the application does, whatever it runs on.
#![no_std]
#![forbid(unsafe_code)]

use nom_app::alloc::{format, string::String};

/// How somebody is greeted.
pub fn greeting(name: &str) -> String {
    format!("Hello, {name}!")
}
