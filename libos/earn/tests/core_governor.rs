//! Several cores under one governor.

mod common;

use common::{Board, Heard, World, earner};
use nom_abi::prices::PricedResource;
use nom_earn::CoreGovernor;
use nom_economy::utility::Utility;
use nom_service::Latency;
use nom_service::{CostRates, Governor, Setting, Window};

const CONTRACT: &str = "Gbit; refund 20 2000";
const PART_NS: u64 = 5_000_000;

type Core = CoreGovernor<parking_lot::RawMutex, Board, Heard>;

fn governors(cores: usize) -> (Vec<Core>, Board, Heard) {
    let (earner, board, heard) = earner(&[("utility", CONTRACT)]);
    board.post(PricedResource::NetworkOut, 1.0, 0);
    (CoreGovernor::of_cores(earner, board.clone(), cores).collect(), board, heard)
}

/// What a core serves in a part of a window, if clients are spread evenly over `of` cores.
fn part(clients: f64, of: f64, now_ns: u64, setting: Setting) -> Window {
    let response = World::truth(clients / of, setting);
    let seconds = PART_NS as f64 / 1e9;
    let nanoseconds = |seconds: f64| (seconds * 1e9) as u64;
    let latency = Latency {
        mean_ns: nanoseconds(response.latency.mean().get()),
        jitter_ns: nanoseconds(response.latency.jitter().get()),
        p99_ns: nanoseconds(response.latency.p99().get()),
    };
    let requests = (response.throughput.get() * seconds) as u64;
    Window {
        from_ns: now_ns - PART_NS,
        to_ns: now_ns,
        requests,
        answered_bytes: 1000 * requests,
        sent_bytes: 1000 * requests,
        latency,
        setting,
        ..Window::default()
    }
}

/// Lets the first of the cores serve for so many parts; the others sleep.
fn serve(cores: &mut [Core], settings: &mut [Setting], of: usize, parts: u64, began_ns: &mut u64) {
    serve_clients(64.0, &mut cores[..of], settings, parts, began_ns);
}

/// The same with so many clients in all.
fn serve_clients(clients: f64, cores: &mut [Core], settings: &mut [Setting], parts: u64, began_ns: &mut u64) {
    let of = cores.len() as f64;
    for _ in 0..parts {
        *began_ns += PART_NS;
        for (core, setting) in cores.iter_mut().zip(settings.iter_mut()) {
            *setting = core.look(*began_ns).unwrap_or(*setting);
            *setting = core.observe(&part(clients, of, *began_ns, *setting));
        }
    }
}

fn rate(setting: Setting, of: f64) -> f64 {
    rate_for(64.0 / of, setting)
}

/// What one core earns from so many clients.
fn rate_for(clients: f64, setting: Setting) -> f64 {
    let utility: Utility = CONTRACT.parse().expect("good");
    utility.revenue(&World::truth(clients, setting), &Default::default()).get()
}

#[test]
fn every_core_knows_what_consumption_costs() {
    let (mut cores, board, _) = governors(2);
    board.post(PricedResource::Core, 0.25, 0);
    board.post(PricedResource::NetworkIn, 0.5, 0);
    let (mut settings, mut now_ns) = ([Setting::default(); 2], 0);
    assert_eq!(cores[1].rates(), CostRates::default(), "nobody has looked yet");
    serve(&mut cores, &mut settings, 2, 4, &mut now_ns);
    let rates = CostRates { core_second: 0.25, sent_byte: 8e-9, received_byte: 4e-9 };
    assert!(cores.iter().all(|core| core.rates() == rates), "{:?}", cores[1].rates());
    board.post(PricedResource::Core, 0.5, now_ns);
    serve(&mut cores, &mut settings, 2, 20, &mut now_ns);
    assert!(cores.iter().all(|core| core.rates().core_second == 0.5));
}

#[test]
fn cores_find_the_best_setting_together_and_all_set_it() {
    let (mut cores, _, heard) = governors(3);
    let (mut settings, mut now_ns) = ([Setting::default(); 3], 0);
    serve(&mut cores, &mut settings, 3, 4000, &mut now_ns);
    assert!(settings.iter().all(|setting| *setting == settings[0]), "{settings:?}");
    let delays = [0, 2, 4, 8, 16, 32, 64, 128, 256].map(std::time::Duration::from_micros);
    let best = delays.map(|batching_delay| rate(Setting { batching_delay, ..Setting::default() }, 3.0));
    let best = best.into_iter().fold(0.0, f64::max);
    assert!(rate(settings[0], 3.0) > 0.97 * best, "{settings:?}");
    // Each core's requests are in the reports, but for parts on their way.
    let reports = heard.reports();
    let told: u64 = reports.iter().map(|report| report.requests).sum();
    let (told, seconds) = (told as f64, reports.last().expect("some").at_ns as f64 / 1e9);
    let one = |setting| 3.0 * World::truth(64.0 / 3.0, setting).throughput.get();
    assert!((told / seconds / one(settings[0]) - 1.0).abs() < 0.1, "{told} in {seconds} s");
}

#[test]
fn a_core_that_sleeps_holds_up_nobody() {
    for awake in [0, 2] {
        let (mut cores, _, heard) = governors(3);
        cores.rotate_left(awake);
        let (mut settings, mut now_ns) = ([Setting::default(); 3], 0);
        serve(&mut cores, &mut settings, 1, 4000, &mut now_ns);
        assert!(rate(settings[0], 1.0) > 1.5 * rate(Setting::default(), 1.0), "{settings:?}");
        assert!(heard.reports().len() > 150);
        // And when it wakes it knows.
        assert_eq!(cores[1].look(now_ns), Some(settings[0]));
        assert_eq!(cores[1].look(now_ns), None);
    }
}

/// An owner tries delays of his own, a second each, with the governor held, and lets it go for a second. It
/// must not take what those bring for what its own point does.
#[test]
fn what_an_owner_orders_teaches_nothing_about_what_was_chosen() {
    for (count, clients) in [(1, 1.0), (1, 64.0), (2, 64.0)] {
        let (mut cores, _, _) = governors(count);
        let (mut settings, mut now_ns) = ([Setting::default(); 2], 0);
        serve_clients(clients, &mut cores, &mut settings, 2000, &mut now_ns);
        let each = clients / count as f64;
        let worth = rate_for(each, settings[0]);
        for round in 0..10 {
            for micros in [0, 116, 5, 500, 25] {
                hold(clients, &mut cores, &mut settings, micros, &mut now_ns);
            }
            let mut earned = 0.0;
            for _ in 0..200 {
                serve_clients(clients, &mut cores, &mut settings, 1, &mut now_ns);
                earned += rate_for(each, settings[0]) / 200.0;
            }
            assert!(earned > 0.97 * worth, "{count}, {clients}, {round}: {earned} of {worth}, {settings:?}");
        }
    }
}

/// Lets all serve a second with an ordered delay.
fn hold(clients: f64, cores: &mut [Core], settings: &mut [Setting; 2], micros: u64, now_ns: &mut u64) {
    let (of, batching_delay) = (cores.len() as f64, std::time::Duration::from_micros(micros));
    for _ in 0..200 {
        *now_ns += PART_NS;
        for (core, setting) in cores.iter_mut().zip(settings.iter_mut()) {
            core.look(*now_ns);
            let window = part(clients, of, *now_ns, Setting { batching_delay, ..*setting });
            *setting = core.observe(&Window { is_overridden: true, ..window });
        }
    }
}

#[test]
fn a_price_reaches_every_core_with_its_next_look() {
    let (mut cores, board, _) = governors(2);
    let (mut settings, mut now_ns) = ([Setting::default(); 2], 0);
    serve(&mut cores, &mut settings, 2, 2000, &mut now_ns);
    // At more than it is worth, less is sent.
    board.post(PricedResource::NetworkOut, 100.0, now_ns);
    let first = cores[1].look(now_ns + 1).expect("another setting");
    assert_ne!(first, settings[1]);
    assert_eq!(cores[0].look(now_ns + 2), Some(first));
    assert_eq!(cores[1].look(now_ns + 3), None);
}
