//! Schedulers against what is promised of them, on request queues whose messages come and cost what they
//! like.

use nom_grid::*;
use proptest::prelude::*;
use std::num::{NonZeroU32, NonZeroU64};

const LIMITS: QueueLimits = QueueLimits { messages: usize::MAX, bytes: usize::MAX };

fn weight(weight: u32) -> NonZeroU32 {
    NonZeroU32::new(weight).unwrap()
}

fn nanoseconds(ns: u64) -> NonZeroU64 {
    NonZeroU64::new(ns).unwrap()
}

fn of_weight(of: u32) -> ClientParameters {
    ClientParameters { weight: weight(of), ..ClientParameters::default() }
}

/// A message that costs so much.
type Cost = u64;

fn queues(scheduler: Box<dyn ResourceScheduler>, clients: &[ClientParameters]) -> RequestQueues<Cost> {
    let mut queues = RequestQueues::new(scheduler, NonZeroU32::MIN);
    for (client, parameters) in clients.iter().enumerate() {
        queues.add(client, parameters, LIMITS).unwrap();
    }
    queues
}

fn bytes(bytes: u64) -> ResourceRecord {
    ResourceRecord { messages: 1, bytes, ..ResourceRecord::default() }
}

proptest! {
    /// While two clients always have something waiting, what each got over its weight differs by no more
    /// than the largest message of each over its weight, whatever the messages cost and whoever else comes
    /// and goes.
    #[test]
    fn shares_are_fair_in_any_time(
        weights in proptest::collection::vec(1u32..100, 3),
        costs in proptest::collection::vec((0u64..1500, 0u64..1500), 50..300),
        third in proptest::collection::vec(any::<bool>(), 300),
    ) {
        let clients: Vec<_> = weights.iter().map(|of| of_weight(*of)).collect();
        let mut queues = queues(Box::new(FairQueueing::new(SharedMetric::Bytes)), &clients);
        for (a, b) in &costs {
            queues.push(0, *a, 0, 0).unwrap();
            queues.push(1, *b, 0, 0).unwrap();
        }
        // Normalised service, at each moment at which both still have something.
        let mut got = vec![[0f64; 2]];
        for (step, comes) in third.iter().enumerate() {
            if *comes {
                queues.push(2, 1000, 0, step as u64).unwrap();
            }
            let Next::Serve(client, cost) = queues.next(step as u64) else { break };
            queues.served(client, &bytes(cost), step as u64);
            let mut now = *got.last().unwrap();
            if client < 2 {
                now[client] += cost as f64 / f64::from(weights[client]);
            }
            got.push(now);
            if queues.held(0).0 == 0 || queues.held(1).0 == 0 {
                break;
            }
        }
        let most = |of: fn(&(u64, u64)) -> u64| costs.iter().map(of).max().unwrap() as f64;
        let bound = most(|c| c.0) / f64::from(weights[0]) + most(|c| c.1) / f64::from(weights[1]);
        for from in 0..got.len() {
            for to in from..got.len() {
                let difference = (got[to][0] - got[from][0]) - (got[to][1] - got[from][1]);
                prop_assert!(difference.abs() <= bound + 1e-6, "{difference} > {bound} in {from}..{to}");
            }
        }
    }

    /// Who was away has no claim from then: it waits for its turn, and takes no more than its share.
    #[test]
    fn who_comes_back_does_not_catch_up(rounds in 1u64..500, of in 1u32..50) {
        let mut queues =
            queues(Box::new(FairQueueing::new(SharedMetric::Bytes)), &[of_weight(of), of_weight(of)]);
        queues.push(1, 100, 0, 0).unwrap();
        (0..rounds + 40).for_each(|_| queues.push(0, 100, 0, 0).unwrap());
        for _ in 0..=rounds {
            let Next::Serve(client, cost) = queues.next(0) else { panic!("everybody waits") };
            queues.served(client, &bytes(cost), 0);
        }
        (0..40).for_each(|_| queues.push(1, 100, 0, 0).unwrap());
        let mut served = [0, 0];
        for _ in 0..20 {
            let Next::Serve(client, cost) = queues.next(0) else { panic!("everybody waits") };
            queues.served(client, &bytes(cost), 0);
            served[client] += 1;
        }
        prop_assert!((9..=11).contains(&served[0]), "{served:?}");
    }

    /// Of jobs that are all there, the latest is as little late as in the best of all orders.
    #[test]
    fn deadlines_are_kept_if_any_order_keeps_them(
        jobs in proptest::collection::vec((1u64..50, 1u64..200), 1..6),
    ) {
        let clients: Vec<_> = jobs
            .iter()
            .map(|(_, due)| ClientParameters { deadline_ns: Some(nanoseconds(*due)), ..Default::default() })
            .collect();
        let mut queues = queues(Box::new(EarliestDeadline::default()), &clients);
        for (client, (cost, _)) in jobs.iter().enumerate() {
            queues.push(client, *cost, 0, 0).unwrap();
        }
        let mut order = Vec::new();
        while let Next::Serve(client, _) = queues.next(0) {
            order.push(client);
        }
        let late = |order: &[usize]| {
            let mut at = 0;
            let lateness = order.iter().map(|job| {
                at += jobs[*job].0;
                at as i64 - jobs[*job].1 as i64
            });
            lateness.max().unwrap()
        };
        let best = orders(jobs.len()).iter().map(|order| late(order)).min().unwrap();
        prop_assert_eq!(order.len(), jobs.len());
        prop_assert_eq!(late(&order), best);
    }

    /// In no time does a client get more than its rate, one burst and one message; and nobody waits who has
    /// tokens.
    #[test]
    fn no_client_exceeds_its_rate(
        (rate, burst) in (1u64..10_000, 1u64..5_000),
        costs in proptest::collection::vec(1u64..1500, 2..60),
        pauses in proptest::collection::vec(0u64..400_000_000, 200),
    ) {
        let limit = RateLimit { per_second: nanoseconds(rate), burst: nanoseconds(burst) };
        let limited = ClientParameters { rate: Some(limit), ..ClientParameters::default() };
        let mut queues = queues(Box::new(RateLimiter::new(SharedMetric::Bytes)), &[limited]);
        costs.iter().for_each(|cost| queues.push(0, *cost, 0, 0).unwrap());
        let most = *costs.iter().max().unwrap();
        let (mut now_ns, mut got) = (0, Vec::new());
        for pause_ns in pauses {
            now_ns += pause_ns;
            match queues.next(now_ns) {
                Next::Serve(client, cost) => {
                    queues.served(client, &bytes(cost), now_ns);
                    got.push((now_ns, cost));
                }
                // At that time, and not before, it is served.
                Next::After(ns) => {
                    prop_assert_eq!(queues.next(now_ns + ns - 1), Next::After(1));
                    now_ns += ns;
                    let Next::Serve(client, cost) = queues.next(now_ns) else { panic!("not served in time") };
                    queues.served(client, &bytes(cost), now_ns);
                    got.push((now_ns, cost));
                }
                Next::Nothing => break,
            }
        }
        for (index, (from_ns, _)) in got.iter().enumerate() {
            let mut sum = 0;
            for (at_ns, cost) in &got[index..] {
                sum += cost;
                let allowed = burst as f64 + (at_ns - from_ns) as f64 * rate as f64 / 1e9 + most as f64;
                prop_assert!(sum as f64 <= allowed + 1e-3, "{sum} > {allowed}");
            }
        }
    }

    /// Whoever is served earns at least what any other ready client would have.
    #[test]
    fn the_next_unit_earns_most(
        steps in proptest::collection::vec(proptest::collection::vec((1u64..20, -5i64..50), 0..4), 1..5),
        messages in proptest::collection::vec(0usize..5, 1..150),
    ) {
        let earns = |steps: &[(u64, i64)]| {
            let mut up_to = 0;
            steps.iter().map(|(units, nanodollars_a_million)| {
                up_to += units;
                EarningStep { up_to, nanodollars_a_million: *nanodollars_a_million }
            }).collect::<Vec<_>>()
        };
        let clients: Vec<_> = steps
            .iter()
            .map(|steps| ClientParameters { earns: earns(steps), ..ClientParameters::default() })
            .collect();
        let mut queues = queues(Box::new(MarginalProfit::new(SharedMetric::Messages)), &clients);
        messages.iter().for_each(|client| queues.push(client % clients.len(), 1, 0, 0).unwrap());
        let mut served = vec![0u64; clients.len()];
        let next = |client: usize, served: u64| {
            let step = clients[client].earns.iter().find(|step| served < step.up_to);
            step.map_or(0, |step| step.nanodollars_a_million)
        };
        loop {
            let ready: Vec<_> = (0..clients.len()).filter(|client| queues.held(*client).0 > 0).collect();
            let Next::Serve(client, _) = queues.next(0) else { break };
            let best = ready.iter().map(|other| next(*other, served[*other])).max().unwrap();
            prop_assert_eq!(next(client, served[client]), best);
            queues.served(client, &bytes(1), 0);
            served[client] += 1;
        }
        prop_assert_eq!(served.iter().sum::<u64>(), messages.len() as u64, "all are served at last");
    }

    /// Two groups share by their weights however many clients each has, and so do the clients of a group.
    #[test]
    fn groups_share_before_their_clients(
        (upper, of) in ((1u32..20, 1u32..20), (1u32..10, 1u32..10)),
    ) {
        let fair = || Box::new(FairQueueing::new(SharedMetric::Bytes)) as Box<dyn ResourceScheduler>;
        let groups = vec![(of_weight(upper.0), fair()), (of_weight(upper.1), fair())];
        let levels = TwoLevel::new(fair(), groups).unwrap();
        let client = |of, group| ClientParameters { group, ..of_weight(of) };
        let clients = [client(1, 0), client(of.0, 1), client(of.1, 1)];
        let mut queues = queues(Box::new(levels), &clients);
        let total = 4_000u64;
        (0..3).for_each(|client| (0..total).for_each(|_| queues.push(client, 10, 0, 0).unwrap()));
        let mut got = [0f64; 3];
        for _ in 0..total {
            let Next::Serve(client, cost) = queues.next(0) else { panic!("everybody waits") };
            queues.served(client, &bytes(cost), 0);
            got[client] += 1.0;
        }
        let within = got[1] + got[2];
        let share = f64::from(upper.0) / f64::from(upper.0 + upper.1);
        prop_assert!((got[0] / total as f64 - share).abs() < 0.01, "{got:?} of weights {upper:?}");
        let share = f64::from(of.0) / f64::from(of.0 + of.1);
        prop_assert!((got[1] / within - share).abs() < 0.01, "{got:?} of weights {of:?}");
    }
}

/// All orders of so many things.
fn orders(count: usize) -> Vec<Vec<usize>> {
    let Some(last) = count.checked_sub(1) else { return vec![vec![]] };
    let shorter = orders(last);
    let with = |order: &Vec<usize>, at| {
        let mut order = order.clone();
        order.insert(at, last);
        order
    };
    shorter.iter().flat_map(|order| (0..count).map(move |at| with(order, at))).collect()
}

#[test]
fn three_activities_share_a_core_by_halves_thirds_and_sixths() {
    let weights = [50, 33, 17];
    let mut queues = queues(Box::new(FairQueueing::new(SharedMetric::CoreTime)), &weights.map(of_weight));
    let mut got = [0u64; 3];
    let mut now_ns = 0;
    // Each always has more; a message takes 2 to 15 microseconds, as in the paper.
    (0..3).for_each(|client| queues.push(client, 0, 0, now_ns).unwrap());
    while now_ns < 5_000_000_000 {
        let Next::Serve(client, _) = queues.next(now_ns) else { panic!("everybody waits") };
        let core_ns = 2_000 + now_ns * (client as u64 + 7) % 13_000;
        now_ns += core_ns;
        queues.push(client, 0, 0, now_ns).unwrap();
        queues.served(client, &ResourceRecord { core_ns, ..ResourceRecord::default() }, now_ns);
        got[client] += core_ns;
    }
    for (client, weight) in weights.iter().enumerate() {
        let share = got[client] as f64 / now_ns as f64;
        assert!((share - *weight as f64 / 100.0).abs() < 0.0001, "{client}: {share}");
    }
}

#[test]
fn whoever_cannot_be_served_as_told_is_refused() {
    let mut by_deadline = EarliestDeadline::default();
    assert_eq!(by_deadline.add_client(0, &of_weight(1)), Err(BadClient::NoDeadline));
    by_deadline.client_ready(0, QueueHead::default(), 0);
    assert_eq!(by_deadline.schedule(0), None);
    let step = |up_to| EarningStep { up_to, nanodollars_a_million: 1 };
    let disordered = ClientParameters { earns: vec![step(5), step(5)], ..ClientParameters::default() };
    let mut by_profit = MarginalProfit::new(SharedMetric::Bytes);
    assert_eq!(by_profit.add_client(0, &disordered), Err(BadClient::Earnings(5, 5)));
    let mut queues = queues(Box::new(RoundRobin::default()), &[]);
    assert_eq!(queues.add(CLIENTS_MAX, &of_weight(1), LIMITS), Err(BadClient::Number(CLIENTS_MAX)));
    let mut levels = TwoLevel::new(Box::new(RoundRobin::default()), vec![]).unwrap();
    assert_eq!(levels.add_client(0, &of_weight(1)), Err(BadClient::Group(0, 0)));
}

#[test]
fn the_largest_weights_and_the_largest_records_overflow_nothing() {
    let heavy = [of_weight(u32::MAX), of_weight(1)];
    let mut queues = queues(Box::new(FairQueueing::new(SharedMetric::Bytes)), &heavy);
    for _ in 0..4 {
        (0..2).for_each(|client| queues.push(client, u64::MAX, 0, u64::MAX).unwrap());
        while let Next::Serve(client, cost) = queues.next(u64::MAX) {
            queues.served(client, &bytes(cost), u64::MAX);
        }
    }
    assert_eq!(queues.consumed(1).bytes, u64::MAX);
}

/// Whoever earns most wants all that there is; whoever earns nothing is served ten times a second, and each
/// of many that earn nothing is.
#[test]
fn whoever_earns_nothing_is_not_kept_out_for_good() {
    let earns = |nanodollars_a_million| vec![EarningStep { up_to: u64::MAX, nanodollars_a_million }];
    let most = ClientParameters { earns: earns(1_000), ..ClientParameters::default() };
    let nothing = ClientParameters { earns: vec![], ..ClientParameters::default() };
    let clients = [most, nothing.clone(), nothing];
    let mut queues = queues(Box::new(MarginalProfit::new(SharedMetric::CoreTime)), &clients);
    let (mut now_ns, mut served, mut longest_ns) = (0u64, [0u64; 3], 0);
    let mut last_ns = 0;
    while now_ns < 2_000_000_000 {
        (0..3).filter(|client| queues.held(*client).0 < 2).collect::<Vec<_>>().into_iter().for_each(
            |client| {
                queues.push(client, 1_000_000, 0, now_ns).unwrap();
            },
        );
        let Next::Serve(client, cost) = queues.next(now_ns) else { panic!("somebody waits") };
        if client == 1 {
            longest_ns = longest_ns.max(now_ns - core::mem::replace(&mut last_ns, now_ns));
        }
        now_ns += cost;
        served[client] += 1;
        let record = ResourceRecord { messages: 1, core_ns: cost, ..ResourceRecord::default() };
        queues.served(client, &record, now_ns);
    }
    assert!(longest_ns <= 102_000_000, "{longest_ns} ns between two");
    assert!((18..=20).contains(&served[1]) && served[1] == served[2], "{served:?}");
    assert!(served[0] >= 1_960, "whoever earns most has the rest: {served:?}");
}
