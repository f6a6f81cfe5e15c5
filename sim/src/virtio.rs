//! The real driver of virtio's network device, on a device made from the specification, which does what it
//! may, breaks, and breaks the rules.

mod device;
mod pair;
mod scene;

pub use device::{Damage, Machinery, VirtioCard};
pub use pair::{Pair, Tracked};
pub use scene::{Outfit, Setup};
