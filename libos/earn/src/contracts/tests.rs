use super::*;
use crate::books::Books;
use nom_economy::prices::{Prices, Usage};
use nom_service::{INFRASTRUCTURE, Latency as Times};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;
/// Contracts that differ in what they pay for, and in what they want.
const CONTRACTS: [&str; 4] = [
    "Gbit; value 20",
    "operation; penalty 0.001 100 0.00075",
    "Gbit; bonus 20 0.01 40",
    "operation; refund 0.002 1",
];

fn utility(index: usize) -> Utility {
    CONTRACTS[index].parse().expect("good")
}

/// Requests of so many bytes that took so many microseconds.
type Asked = (u64, u64, u64);

fn window(second: u64, (requests, bytes, micros): Asked) -> Window {
    let latency = Times { mean_ns: micros * 1000, jitter_ns: micros * 300, p99_ns: micros * 2000 };
    let answered_bytes = requests * bytes;
    Window {
        from_ns: second * SECOND,
        to_ns: (second + 1) * SECOND,
        requests,
        answered_bytes,
        latency,
        ..Window::default()
    }
}

/// All that several were served, as a server measures it.
fn together(second: u64, shares: &[Window]) -> Window {
    let mut whole = Stretch::default();
    shares.iter().for_each(|share| whole.add(share));
    whole.window(second * SECOND, (second + 1) * SECOND, Setting::default())
}

fn stretches(windows: &[Window]) -> Vec<Stretch> {
    let mut served = Served::default();
    served.add_shares(windows);
    served.shares
}

fn asked() -> impl Strategy<Value = Asked> {
    prop_oneof![Just((0, 0, 0)), (1u64..50_000, 1u64..2_000, 20u64..3_000)]
}

fn activity(place: usize) -> Activity {
    Activity(place as u32)
}

proptest! {
    /// Whoever asks what, and whatever each pays: the activities' revenues are the application's, and whoever
    /// has a contract of his own pays by that what it says of what he was answered.
    #[test]
    fn what_activities_bring_is_what_the_application_brings(
        seconds in prop::collection::vec(prop::array::uniform5(asked()), 1..6),
        own in prop::collection::vec((3usize..5, 0usize..4), 0..2),
        rest in 0usize..4,
    ) {
        let own: Vec<_> = own.iter().map(|(place, line)| (activity(*place), utility(*line))).collect();
        let mut contracts = Contracts::new(utility(rest), own.clone());
        let (mut books, prices) = (Books::new(), Prices::default());
        let mut expected = [0.0; 5];
        for (second, asked) in seconds.iter().enumerate() {
            let shares = asked.map(|asked| window(second as u64, asked));
            let (whole, parts) = (together(second as u64, &shares), stretches(&shares));
            books.close(&whole, &parts, &mut contracts, &Usage::default());
            for (activity, utility) in &own {
                let response = window::response(&shares[activity.0 as usize]).expect("a second");
                expected[activity.0 as usize] += utility.revenue(&response, &prices).get();
            }
        }
        let (mut sum, mut of) = (0.0, [0.0; 5]);
        books.shares(&contracts, |Activity(number), money| {
            sum += money.dollars();
            of[number as usize] = money.dollars();
        });
        let whole = books.account(&contracts).revenue.dollars();
        prop_assert!((sum - whole).abs() <= 1e-6 + 1e-9 * whole.abs(), "{sum} of {whole}");
        for (Activity(number), _) in own {
            let (told, expected) = (of[number as usize], expected[number as usize]);
            // Times are whole nanoseconds where they are pooled.
            prop_assert!((told - expected).abs() <= 1e-6 + 1e-3 * expected.abs(), "{told} of {expected}");
        }
    }
}

#[test]
fn without_own_contracts_the_applications_is_divided_by_what_it_pays_for() {
    for (line, parts) in [(0, [0.25, 0.75]), (1, [0.5, 0.5])] {
        let mut contracts = Contracts::new(utility(line), Vec::new());
        let mut books = Books::new();
        let shares = [(0, 0, 0), (0, 0, 0), (0, 0, 0), (1000, 100, 200), (1000, 300, 200)]
            .map(|asked| window(0, asked));
        books.close(&together(0, &shares), &stretches(&shares), &mut contracts, &Usage::default());
        let whole = books.account(&contracts).revenue.dollars();
        assert!(whole > 0.0);
        let mut of = [0.0; 5];
        books.shares(&contracts, |Activity(number), money| of[number as usize] = money.dollars() / whole);
        for (told, expected) in of[3..].iter().zip(parts) {
            assert!((told - expected).abs() < 1e-6, "{of:?}");
        }
        assert!(of[INFRASTRUCTURE.0 as usize].abs() < 1e-6);
    }
}

/// What would be earned at another point is foretold by whom it would be for.
#[test]
fn another_response_brings_what_each_would_pay_for_its_part() {
    let mut contracts =
        Contracts::new(utility(0), vec![(activity(3), utility(1)), (activity(4), utility(2))]);
    let prices = Prices::default();
    let now = [(0, 0, 0), (0, 0, 0), (500, 800, 100), (1000, 100, 200), (2000, 300, 300)];
    let slower = now.map(|(requests, bytes, micros)| (requests * 2, bytes, micros * 2));
    let [now, slower] = [now, slower].map(|asked| {
        let shares = asked.map(|asked| window(0, asked));
        Served { whole: stretches(&[together(0, &shares)])[0], shares: stretches(&shares) }
    });
    let foretold = |contracts: &Contracts| {
        let response = response(&slower.whole).expect("a second");
        contracts.at(Hold::default()).revenue(&response, &prices).get()
    };
    let strangers = foretold(&contracts);
    contracts.learn(&now);
    let truth = contracts.bring(&slower, &prices, |_, _| {}).get();
    assert!((foretold(&contracts) / truth - 1.0).abs() < 1e-3, "{} of {truth}", foretold(&contracts));
    assert!((strangers / truth - 1.0).abs() > 0.1, "whom it is for matters");
}

fn worth(contracts: &Contracts, windows: &[Window]) -> Vec<f64> {
    let served = Served { whole: stretches(&[together(0, windows)])[0], shares: stretches(windows) };
    let mut told = vec![f64::NAN; windows.len()];
    contracts.worth(&served, &Prices::default(), |Activity(number), dollars| told[number as usize] = dollars);
    told
}

proptest! {
    /// Where nothing is paid by the second, another request brings what one of those before did.
    #[test]
    fn another_request_is_worth_what_it_brings(
        line in 0usize..4,
        (requests, bytes, micros) in (100u64..50_000, 1u64..2_000, 20u64..3_000),
        other in asked(),
    ) {
        let contracts = Contracts::new(utility(0), vec![(activity(4), utility(line))]);
        let nobody = window(0, (0, 0, 0));
        let windows = [nobody, nobody, nobody, window(0, other), window(0, (requests, bytes, micros))];
        let told = worth(&contracts, &windows);
        let response = window::response(&windows[4]).expect("a second");
        let brings = utility(line).revenue(&response, &Prices::default()).get() / requests as f64;
        prop_assert!((told[4] - brings).abs() <= 1e-9 + 1e-3 * brings.abs(), "{} of {brings}", told[4]);
        prop_assert!(told[0].is_nan(), "nobody asked for anything");
    }
}

#[test]
fn what_waits_for_others_is_worth_what_it_would_be_if_it_did_not() {
    let contracts = Contracts::new(utility(0), vec![(activity(1), utility(1))]);
    let late = window(0, (1000, 100, 3_000));
    let [at_once, waited] = [0, 2_800_000].map(|waited_ns| {
        let told = worth(&contracts, &[window(0, (0, 0, 0)), Window { waited_ns, ..late }]);
        told[1]
    });
    // A thousandth of a dollar for a request within three quarters of a millisecond, and nothing for another.
    assert!(at_once < 1e-6 && waited > 0.9e-3, "{at_once} and {waited}");
}

#[test]
fn what_is_paid_for_no_more_is_worth_nothing() {
    let contract = "operation; table throughput second 0:0 1000:2".parse().expect("good");
    let contracts = Contracts::new(utility(0), vec![(activity(1), contract)]);
    let told = |requests| worth(&contracts, &[window(0, (0, 0, 0)), window(0, (requests, 10, 100))])[1];
    assert!(
        (told(500) - 0.002).abs() < 1e-6 && told(2_000).abs() < 1e-9,
        "{} and {}",
        told(500),
        told(2_000)
    );
}
