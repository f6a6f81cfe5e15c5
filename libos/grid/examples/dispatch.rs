//! What it costs to put a message into a request queue and to take it out again, for who counts instructions:
//! `valgrind --tool=callgrind dispatch CASE COUNT`, twice with different counts; the difference is what so
//! many messages take. `direct` is the question whether a resource may be called past its scheduler.

use nom_grid::{
    ClientParameters, EarliestDeadline, FairQueueing, MarginalProfit, Next, QueueLimits, RateLimiter,
    RequestQueues, ResourceRecord, ResourceScheduler, RoundRobin, SharedMetric,
};
use std::hint::black_box;
use std::num::{NonZeroU32, NonZeroU64};

fn main() {
    let mut words = std::env::args().skip(1);
    let (case, count) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let count: u64 = count.parse().expect("CASE COUNT [BATCHING]: expected a number");
    let batching: u32 = words.next().map_or(1, |word| word.parse().expect("a batching factor"));
    let scheduler: Box<dyn ResourceScheduler> = match case.as_str() {
        "direct" | "fair" => Box::new(FairQueueing::new(SharedMetric::CoreTime)),
        "round-robin" => Box::new(RoundRobin::default()),
        "deadline" => Box::new(EarliestDeadline::default()),
        "rate" => Box::new(RateLimiter::new(SharedMetric::Bytes)),
        "profit" => Box::new(MarginalProfit::new(SharedMetric::Bytes)),
        other => panic!("{other}: expected direct, fair, round-robin, deadline, rate or profit"),
    };
    let mut queues = RequestQueues::new(scheduler, NonZeroU32::new(batching).expect("at least 1"));
    let parameters = ClientParameters { deadline_ns: NonZeroU64::new(1000), ..ClientParameters::default() };
    let limits = QueueLimits { messages: 64, bytes: 1 << 20 };
    (0..3).for_each(|client| queues.add(client, &parameters, limits).expect("these suit all"));
    let mut served = 0u64;
    if case == "direct" {
        for _ in 0..count {
            served += u64::from(black_box(&queues).is_direct());
        }
    } else {
        // Three clients with something to do: a round puts in eight of each, and takes out all.
        let record = ResourceRecord { messages: 1, core_ns: 1000, bytes: 100, ..ResourceRecord::default() };
        while served < count {
            let now_ns = served * 1000;
            for message in 0..24 {
                queues.push(message as usize % 3, message, 100, now_ns).expect("room for all");
            }
            while let Next::Serve(client, message) = queues.next(now_ns) {
                black_box(message);
                queues.served(client, &record, now_ns);
                served += 1;
            }
        }
    }
    println!("{served} messages");
}
