//! What answers the calls that are about no descriptor.

pub mod limits;
pub mod memory;
pub mod priority;
pub mod processes;
pub mod signals;
pub mod system;
pub mod threads;
pub mod time;
pub mod timers;
