//! Amazon Web Services: the history of spot prices, and its lists for everybody.

mod egress;
mod sigv4;
mod spot_history;
mod spot_list;

pub use egress::Egress;
pub use spot_history::SpotHistory;
pub use spot_list::SpotList;
