//! Elasticity: a server's cores come and go while it runs, and no client notices.
//!
//! Cores come from a [`CorePool`]. The first core, the coordinator, leads each change, one at a time, as a
//! row of numbered [epochs](Epoch): it publishes the next once every core has carried out the one before, so
//! that no two cores are ever more than one epoch apart. Each core follows through its [`ElasticCore`], by
//! which frames are forwarded and flows migrate.
//!
//! ```text
//! fewer:          1                    2                           3              4
//!         Rest ------> Giving ------------------> Closing ---------------> Closing -----> Rest
//!                        |                         unrung                   rung
//!                        | 2b the device goes on
//!                        v    with all queues
//! more:           5            6              7             8
//!         Rest ------> Coming ----> Widening ------> Sharing -----> Rest
//! ```
//! What the coordinator does, and the ring, the active cores and whether flows move in the epoch that it
//! publishes:
//!
//! | | when | does | ring, active, moving |
//! |---|---|---|---|
//! | 1 | fewer cores are wanted | has the last cores give their flows away | all, few, yes |
//! | 2 | all have | has the device spread over the first cores only | few, few, no |
//! | 2b | it refused | goes on at 7, and asks again a second later | |
//! | 3 | all have heard | rings the last cores: nobody forwards to them any more | |
//! | 4 | they have left | rests | |
//! | 5 | more cores are wanted | asks the pool, which says how many come | |
//! | 6 | they are there | has frames go round them, too | more, few, no |
//! | 7 | all have heard | has the old cores give a fair part of their flows | more, more, yes |
//! | 8 | all have | says that no flow is on its way any more | more, more, no |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod coordinator;
mod core;
mod epoch;
mod mail;
mod pool;

pub use crate::core::ElasticCore;
pub use epoch::Epoch;
pub use mail::{CameBy, ForwardCounts, Mail};
pub use pool::CorePool;
