//! Those who use the servers, well or badly.

pub mod caller;
pub mod control;
pub mod datagrams;
pub mod flood;
pub mod http;
pub mod memcached;
pub mod netpipe;
pub mod pace;
pub mod rude;
pub mod streams;
