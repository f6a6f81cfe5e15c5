//! Who sets a server's working point while it runs.

use crate::activity::{Activity, Urgent};
use crate::consumed::Consumed;
use crate::demand::Demand;
use alloc::vec::Vec;
use core::time::Duration;

/// What can be set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    /// W, the longest that a packet is held to batch it.
    pub batching_delay: Duration,
    /// Whether the core polls and never sleeps; otherwise it does what costs least.
    pub polls: bool,
    /// How many of the server's cores serve, the first ones; 0 for all. The others are given back.
    pub cores: u16,
    /// What the service may take for what it keeps, in MiB; 0 for as much as it was told at its start.
    pub memory_mib: u32,
    /// Most clients that each core has; all that come, if there is no number. Who is one too many is
    /// answered once more, and the connection closed; who comes then is not let in. With 0, datagrams are not
    /// answered.
    pub clients_max: Option<u32>,
    /// Whose packets are not held, whatever W is.
    pub urgent: Urgent,
}

/// Latencies of the requests of a window, in nanoseconds; all 0 if there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Mean.
    pub mean_ns: u64,
    /// Standard deviation.
    pub jitter_ns: u64,
    /// What 99 of 100 requests were within.
    pub p99_ns: u64,
}

/// What happened in a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// When it began.
    pub from_ns: u64,
    /// When it ended.
    pub to_ns: u64,
    /// Requests answered.
    pub requests: u64,
    /// Bytes of the answers, as users read them: what they pay for.
    pub answered_bytes: u64,
    /// Bytes of the frames that left, as a provider meters them.
    pub sent_bytes: u64,
    /// Bytes of the frames that came.
    pub received_bytes: u64,
    /// Clients with a connection at its end; of several cores, those of the one that has most.
    pub clients: u32,
    /// Latency in the machine: from when the driver saw the request's frame to when the device was told of
    /// the reply's.
    pub service: Latency,
    /// Latency as clients see it, as far as a server can tell: with the path.
    pub latency: Latency,
    /// How long a frame waited until others were served that a scheduler had put before it, in nanoseconds;
    /// mean of all that came for an activity, where it is an activity's window.
    pub waited_ns: u64,
    /// What was in force when it ended: of cores, how many served, which may be fewer than ordered; 0 if none
    /// can be given back.
    pub setting: Setting,
    /// Whether somebody else than the governor had a say in the setting of any part of it. What came of that
    /// is served and paid for, but teaches the governor nothing about the point that it had chosen.
    pub is_overridden: bool,
}

impl Window {
    /// How long it was.
    #[must_use]
    pub fn length_ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }
}

/// What consumption costs, in dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CostRates {
    /// A core for a second.
    pub core_second: f64,
    /// A byte of a frame that leaves.
    pub sent_byte: f64,
    /// A byte of a frame that comes.
    pub received_byte: f64,
}

/// What a server has brought and what it has cost so far, in billionths of a dollar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Earned {
    /// What came in.
    pub revenue: i64,
    /// What all that it held and moved cost.
    pub cost: i64,
}

/// Sets a server's working point while it runs.
pub trait Governor {
    /// Whether what [`Governor::observe`] returns is to be set. One that only watches leaves the working
    /// point to others.
    fn governs(&self) -> bool {
        true
    }

    /// What to set where it wants `setting` and `before` is set: only what is its to choose.
    fn within(&self, setting: Setting, before: Setting) -> Setting {
        let cores = if self.chooses_cores() { setting.cores } else { before.cores };
        Setting { cores, ..setting }
    }

    /// Whether how many cores serve is its choice, too; otherwise that stays as it was ordered.
    fn chooses_cores(&self) -> bool {
        true
    }

    /// How long the next window is to be; asked when one begins. A window without a request may last longer:
    /// nobody wakes an idle core to look at nothing, unless it is asked for by [`Governor::idle_ns`].
    fn window_ns(&self) -> u64 {
        20_000_000
    }

    /// After how long a window without a request ends, too, so that somebody hears that the server is idle;
    /// never, if nobody wants to know. Each costs an idle core a wake-up.
    fn idle_ns(&self) -> Option<u64> {
        None
    }

    /// What consumption costs at present; nothing, as far as it knows no prices.
    fn rates(&self) -> CostRates {
        CostRates::default()
    }

    /// Whether it wants to hear what the service makes of memory, about once a second.
    fn wants_demand(&self) -> bool {
        false
    }

    /// What the service makes of memory; said before [`Governor::observe`].
    fn hear(&mut self, demand: &Demand) {
        let _ = demand;
    }

    /// Whether it wants to hear for whom what was served.
    fn wants_shares(&self) -> bool {
        false
    }

    /// What was served for each activity in the window that has ended, by its number; said before
    /// [`Governor::observe`].
    fn divide(&mut self, shares: &[Window]) {
        let _ = shares;
    }

    /// Whether the users of an activity pay by a contract that it knows.
    fn is_paid(&self, activity: Activity) -> bool {
        let _ = activity;
        false
    }

    /// What another request of each activity would bring beyond what it costs, if it did not have to wait for
    /// others, in billionths of a dollar, by `tell`: as far as it knows that by now.
    fn worth(&self, tell: &mut dyn FnMut(Activity, f64)) {
        let _ = tell;
    }

    /// What was earned so far, if that is this governor's to tell, and by `tell` what of the revenue came
    /// from each activity, in billionths of a dollar.
    fn earned(&mut self, tell: &mut dyn FnMut(Activity, i64)) -> Option<Earned> {
        let _ = tell;
        None
    }

    /// Whether it wants to hear at `now_ns` what activities have consumed.
    fn wants_consumed(&self, now_ns: u64) -> bool {
        let _ = now_ns;
        false
    }

    /// What each activity has consumed of this core until `now_ns`, by its number; told when it wants to hear
    /// that, and when the core leaves.
    fn consumed(&mut self, now_ns: u64, consumed: Vec<Consumed>) {
        let _ = (now_ns, consumed);
    }

    /// A window has ended; what it returns is set at once.
    fn observe(&mut self, window: &Window) -> Setting;

    /// Asked at every poll and wake-up of the core, so it must be cheap: another setting, if there is reason
    /// for it before the window has ended. It is set at once.
    fn look(&mut self, now_ns: u64) -> Option<Setting> {
        let _ = now_ns;
        None
    }
}
