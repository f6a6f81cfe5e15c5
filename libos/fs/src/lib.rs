//! The files of Linux programs, without a machine: one tree of names over memory, the files that are packed
//! into the image, devices and what `/proc` tells.
//!
//! A [`Vfs`] is one plain value. Its calls never block and say what Linux would say; whoever shares it
//! chooses the lock. What a call depends on is an argument: [`Caller`] has the credentials, the directories
//! that paths begin at, the time, and who knows the processes. What is read and written lies in memory: a
//! file begins as the image's own bytes, which are not copied, page by page, before they are written. A
//! [`NodeId`] names what a path leads to; it stays what it is while it is held ([`Vfs::hold`]), whatever
//! happens to its names.
//!
//! ```
//! use linux_raw_sys::general::{O_CREAT, O_RDWR};
//! use nom_fs::{Caller, Credentials, FileTime, Vfs};
//!
//! let mut vfs = Vfs::new(FileTime::default(), 1 << 20);
//! let credentials = Credentials::default();
//! let root = vfs.root();
//! let caller = Caller::first(&credentials, root, FileTime::default());
//! let file = vfs.open(&caller, root, b"/greeting", O_CREAT | O_RDWR, 0o666)?;
//! vfs.write(file, 0, b"hello", &caller)?;
//! let mut bytes = [0; 8];
//! assert_eq!(vfs.read(file, 0, &mut bytes)?, 5);
//! assert_eq!(vfs.attributes(&caller, file)?.permissions, 0o644);
//! vfs.release(file);
//! # Ok::<(), nom_fs::Errno>(())
//! ```
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod attributes;
mod caller;
mod contents;
mod create;
mod data;
mod devices;
mod directory;
mod disk;
mod errno;
mod extended;
mod host;
mod listing;
mod locks;
mod node;
mod packed;
pub mod proc;
mod remove;
mod rename;
mod seals;
mod sys;
mod vfs;
mod walk;
mod watch;

pub use attributes::{Attributes, FileTime, Ownership, SpaceFacts, Stamp};
pub use caller::{Access, Caller, Credentials, Scope};
pub use data::Seek;
pub use devices::{CONSOLE, FULL, NULL, PTMX, RANDOM, TTY, URANDOM, ZERO, terminal_of};
pub use errno::Errno;
pub use extended::{ATTRIBUTE_NAME_MAX, ATTRIBUTE_VALUE_MAX};
pub use host::Durable;
pub use listing::{DirectoryEntry, NodeType};
pub use locks::{LOCK_END, Lock, LockKind, LockOwner, LockTable, Locks};
pub use node::NodeId;
pub use packed::BadArchive;
pub use proc::{NoProcesses, Processes};
pub use rename::Replace;
pub use seals::SharedMapping;
pub use vfs::{MemoryRoom, MountAccess, Vfs};
pub use walk::LastLink;
pub use watch::{FileEvent, Watcher};
