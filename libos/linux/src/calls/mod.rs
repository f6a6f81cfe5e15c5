//! What answers the calls that are about no descriptor.

pub mod barriers;
pub mod controls;
pub mod for_files;
pub mod identities;
mod ipc;
pub mod limits;
pub mod mailboxes;
pub mod memory;
pub mod nodes;
pub mod others_memory;
pub mod priority;
pub mod processes;
pub mod scheduling;
pub mod segments;
pub mod semaphores;
pub mod signals;
pub mod system;
pub mod threads;
pub mod time;
pub mod timers;
