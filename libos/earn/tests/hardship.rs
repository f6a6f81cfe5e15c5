//! No prices, wrong prices, clocks that jump, windows that cannot be: the governor stays within its bounds.

mod common;

use common::{World, earner};
use nom_abi::prices::PricedResource;
use nom_economy::prices::Resource;
use nom_service::Latency;
use nom_service::{Governor, Setting, Window};
use proptest::prelude::*;
use std::time::Duration;

const CONTRACT: (&str, &str) = ("utility", "Gbit; refund 20 2000");

fn delay(setting: Setting) -> u128 {
    setting.batching_delay.as_micros()
}

#[test]
fn without_prices_nothing_is_delayed_and_revenue_is_all_that_is_known() {
    let mut world = World::new(&[CONTRACT], 1);
    for _ in 0..500 {
        world.window(64.0);
        assert_eq!(delay(world.earner.setting()), 0);
    }
    let report = *world.heard.reports().last().expect("some");
    assert_eq!((report.price_revision, f64::from_bits(report.price_network_out)), (0, 0.0));
    assert!(f64::from_bits(report.revenue_per_second) > 0.0);
    assert_eq!(f64::from_bits(report.cost_per_second), 0.0);
}

#[test]
fn a_fixed_delay_is_kept_and_its_profit_told() {
    let mut world = World::new(&[CONTRACT, ("batching_delay", "35")], 2);
    world.board.post(PricedResource::NetworkOut, 1.0, 0);
    for _ in 0..200 {
        world.window(64.0);
        world.board.post(PricedResource::NetworkOut, 1.0 + world.now_ns as f64 / 1e9, world.now_ns);
        assert_eq!(world.earner.look(world.now_ns), None);
        assert_eq!(delay(world.earner.setting()), 35);
    }
    let account = world.earner.account();
    assert!(account.profit().nanos() > 0 && account.cost.nanos() > 0, "{account:?}");
}

#[test]
fn wrong_prices_change_nothing_and_age_shows() {
    let mut world = World::new(&[CONTRACT], 3);
    world.board.post(PricedResource::NetworkOut, 2.0, 0);
    world.window(64.0);
    for (refusals, lie) in [f64::NAN, -1.0, 0.0, f64::INFINITY, 1e300, 5e-324].into_iter().enumerate() {
        world.board.post(PricedResource::NetworkOut, lie, world.now_ns);
        assert_eq!(world.earner.look(world.now_ns), None, "{lie}");
        world.windows(10, 64.0);
        assert_eq!(world.earner.tariff().price(Resource::NetworkOut), 2.0, "{lie}");
        assert_eq!(world.heard.refusals(), refusals + 1, "told once");
        let age_ns = world.earner.tariff().prices.age_ns(Resource::NetworkOut, world.now_ns);
        assert_eq!(age_ns, Some(world.now_ns));
    }
}

#[test]
fn reports_come_every_tenth_of_a_second_and_add_up() {
    let mut world = World::new(&[CONTRACT], 4);
    world.board.post(PricedResource::NetworkOut, 1.0, 0);
    while world.now_ns < 10_000_000_000 {
        world.window(64.0);
    }
    let reports = world.heard.reports();
    assert!(reports.windows(2).all(|pair| pair[1].at_ns - pair[0].at_ns <= 150_000_000));
    assert_eq!(
        reports.iter().map(|report| report.window_ns).sum::<u64>(),
        reports.last().expect("some").at_ns
    );
    let earned =
        |bits: u64, report: &nom_abi::priced::Report| f64::from_bits(bits) * report.window_ns as f64 / 1e9;
    let profit: f64 =
        reports.iter().map(|r| earned(r.revenue_per_second, r) - earned(r.cost_per_second, r)).sum();
    let told = f64::from_bits(reports.last().expect("some").profit);
    assert!((profit - told).abs() < 1e-6 * told.abs(), "{profit} {told}");
}

/// Two governors see the same but for windows of one that a jump of the clock made.
#[test]
fn a_jump_of_the_clock_teaches_nothing() {
    let [mut calm, mut jumpy] = [(); 2].map(|()| {
        let (earner, board, _) = earner(&[CONTRACT]);
        board.post(PricedResource::NetworkOut, 1.0, 0);
        earner
    });
    let mut now_ns = 0;
    for number in 0..400 {
        let setting = calm.setting();
        let window = window_at(now_ns, now_ns + 20_000_000, setting);
        now_ns = window.to_ns;
        if number % 10 == 3 {
            for (from_ns, to_ns) in [(now_ns, 5), (now_ns, now_ns), (now_ns, now_ns + 3_600_000_000_000)] {
                let wild =
                    Window { latency: Latency::default(), requests: 9, ..window_at(from_ns, to_ns, setting) };
                assert_eq!(jumpy.observe(&wild), setting);
            }
        }
        assert_eq!(calm.observe(&window), jumpy.observe(&window));
    }
    assert_eq!(calm.setting(), jumpy.setting());
}

fn window_at(from_ns: u64, to_ns: u64, setting: Setting) -> Window {
    let delay_ns = setting.batching_delay.as_nanos() as u64;
    Window {
        from_ns,
        to_ns,
        requests: 400,
        answered_bytes: 400_000,
        sent_bytes: 400_000,
        received_bytes: 40_000,
        clients: 4,
        latency: Latency {
            mean_ns: 100_000 + delay_ns,
            jitter_ns: 10_000 + delay_ns / 4,
            p99_ns: 150_000 + 2 * delay_ns,
        },
        service: Latency::default(),
        setting,
        ..Window::default()
    }
}

fn any_window() -> impl Strategy<Value = (u64, u64, [u64; 6])> {
    // Numbers of any size, the small ones as often as the great ones.
    let number = || (any::<u64>(), 0_u32..64).prop_map(|(bits, shift)| bits >> shift);
    (number(), number(), prop::array::uniform6(number()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn nothing_makes_it_leave_its_bounds(
        windows in prop::collection::vec((any_window(), any::<f64>(), 0_usize..6, any::<bool>()), 1..40),
        has_notice: bool,
    ) {
        let knobs = if has_notice { "batching_delay,notice" } else { "batching_delay" };
        let (mut earner, board, heard) = earner(&[CONTRACT, ("batching_delay_max", "300"), ("knobs", knobs)]);
        for ((from_ns, to_ns, numbers), price, resource, looks) in windows {
            let [requests, sent_bytes, received_bytes, mean_ns, jitter_ns, p99_ns] = numbers;
            board.post(PricedResource::ALL[resource], price, p99_ns);
            if looks {
                earner.look(from_ns);
            }
            let window = Window {
                from_ns,
                to_ns,
                requests,
                answered_bytes: sent_bytes,
                sent_bytes,
                received_bytes,
                clients: requests as u32,
                latency: Latency { mean_ns, jitter_ns, p99_ns },
                service: Latency::default(),
                setting: earner.setting(),
                ..Window::default()
            };
            let setting = earner.observe(&window);
            prop_assert!(setting.batching_delay <= Duration::from_micros(300));
            prop_assert!(has_notice || !setting.polls);
            prop_assert!((20_000_000..=50_000_000).contains(&earner.window_ns()));
            let rates = heard.reports().into_iter().flat_map(|r| [r.revenue_per_second, r.profit]);
            prop_assert!(rates.map(f64::from_bits).all(f64::is_finite));
        }
    }
}
