//! Three tenants with contracts of their own on one core that cannot serve all they want: what marginal
//! profit earns against fair shares, over many seeds. A contract pays for so many milliseconds of the core
//! a second, for more of them less, and for the rest nothing.

use nom_grid::*;
use std::num::NonZeroU32;

const SEEDS: u64 = 200;
const TENANTS: usize = 3;
const SECOND_NS: u64 = 1_000_000_000;
const SECONDS: u64 = 3;
/// How often tenants ask.
const STEP_NS: u64 = 2_000_000;
/// Messages that wait for each at most: more are refused, as a server's queues do.
const LIMITS: QueueLimits = QueueLimits { messages: 64, bytes: usize::MAX };

/// Numbers from a seed (Steele, Lea, Flood: SplitMix64, OOPSLA 2014).
struct Random(u64);

impl Random {
    fn between(&mut self, least: u64, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        least + (mixed ^ mixed >> 31) % (most - least + 1)
    }
}

/// What a tenant wants, and pays.
struct Tenant {
    /// Nanoseconds of the core that it asks for each second, and that a message of its takes at most.
    wants_ns: u64,
    message_ns: u64,
    contract: Vec<EarningStep>,
}

impl Tenant {
    fn random(random: &mut Random) -> Tenant {
        let first = random.between(SECOND_NS / 20, SECOND_NS / 2);
        let price = random.between(100, 10_000) as i64;
        let less = price / random.between(2, 10) as i64;
        let step = |up_to, nanodollars_a_million| EarningStep { up_to, nanodollars_a_million };
        Tenant {
            wants_ns: random.between(SECOND_NS / 4, 2 * SECOND_NS),
            message_ns: random.between(100_000, 1_000_000),
            contract: vec![step(first, price), step(first + SECOND_NS / 4, less)],
        }
    }

    /// What it pays for a second in which it was served for so long, in nanodollars.
    fn pays(&self, served_ns: u64) -> i64 {
        let mut from = 0;
        let steps = self.contract.iter().map(|step| {
            let units = served_ns.min(step.up_to).saturating_sub(from);
            from = step.up_to;
            units as i64 * step.nanodollars_a_million / 1_000_000
        });
        steps.sum()
    }

    fn parameters(&self) -> ClientParameters {
        ClientParameters {
            weight: NonZeroU32::new(1).expect("one"),
            earns: self.contract.clone(),
            ..ClientParameters::default()
        }
    }
}

/// What all tenants pay, and how long the core had nothing to do though somebody waited.
fn earned(seed: u64, scheduler: Box<dyn ResourceScheduler>) -> (i64, u64) {
    let mut random = Random(seed);
    let tenants: Vec<Tenant> = (0..TENANTS).map(|_| Tenant::random(&mut random)).collect();
    let mut queues = RequestQueues::new(scheduler, NonZeroU32::MIN);
    for (client, tenant) in tenants.iter().enumerate() {
        queues.add(client, &tenant.parameters(), LIMITS).unwrap();
    }
    let (mut now_ns, mut earned, mut wasted_ns) = (0, 0, 0);
    for second in 0..SECONDS {
        let mut served_ns = [0; TENANTS];
        // Contracts count from the second's begin.
        for (client, tenant) in tenants.iter().enumerate() {
            queues.update(client, &tenant.parameters(), now_ns).unwrap();
        }
        for step_ns in (second * SECOND_NS..(second + 1) * SECOND_NS).step_by(STEP_NS as usize) {
            for (client, tenant) in tenants.iter().enumerate() {
                let mut asked_ns = 0;
                while asked_ns < tenant.wants_ns / (SECOND_NS / STEP_NS) {
                    let cost_ns = random.between(tenant.message_ns / 4, tenant.message_ns);
                    asked_ns += cost_ns;
                    // Whoever has too much waiting is told so.
                    let _ = queues.push(client, cost_ns, 0, step_ns);
                }
            }
            now_ns = now_ns.max(step_ns);
            while now_ns < step_ns + STEP_NS {
                let Next::Serve(client, core_ns) = queues.next(now_ns) else { break };
                now_ns += core_ns;
                served_ns[client] += core_ns;
                let record = ResourceRecord { messages: 1, core_ns, ..ResourceRecord::default() };
                queues.served(client, &record, now_ns);
            }
            if queues.waiting() > 0 {
                wasted_ns += (step_ns + STEP_NS).saturating_sub(now_ns);
            }
        }
        earned += tenants.iter().zip(served_ns).map(|(tenant, ns)| tenant.pays(ns)).sum::<i64>();
    }
    (earned, wasted_ns)
}

#[test]
fn marginal_profit_earns_more_than_fair_shares() {
    let (mut fair_sum, mut profit_sum, mut better, mut worst) = (0, 0, 0, f64::INFINITY);
    for seed in 0..SEEDS {
        let (fair, wasted) = earned(seed, Box::new(FairQueueing::new(SharedMetric::CoreTime)));
        let (profit, also) = earned(seed, Box::new(MarginalProfit::new(SharedMetric::CoreTime)));
        assert_eq!(
            (wasted, also),
            (0, 0),
            "seed {seed}: a core that has nothing to do though somebody waits"
        );
        worst = worst.min(profit as f64 / fair as f64);
        (fair_sum, profit_sum) = (fair_sum + fair, profit_sum + profit);
        better += u64::from(profit > fair);
    }
    let ratio = profit_sum as f64 / fair_sum as f64;
    // Whoever pays best is served as soon as he asks, though his contract might be kept later in the second;
    // what others asked meanwhile and was refused is lost. So with some seeds it is a little less.
    let said = format!("{ratio:.3} of fair shares; more with {better} of {SEEDS} seeds, at worst {worst:.3}");
    println!("{said}");
    assert!(ratio > 1.1 && better > SEEDS * 9 / 10 && worst > 0.9, "{said}");
}
