use super::super::model::tests::{fresh, prices, status};
use super::super::model::{Model, Update};
use super::*;
use expect_test::{Expect, expect};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::time::Duration;

/// What a screen of that size shows of the model, rows without their trailing spaces, behind a bar.
fn screen(model: &Model, seconds: u64, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen in memory");
    let view = model.view(Duration::from_secs(seconds));
    terminal.draw(|frame| draw(frame, &view, |count| model.console(count))).expect("drawn");
    let buffer = terminal.backend().buffer();
    let rows = buffer.content().chunks(usize::from(width.max(1)));
    let row = |cells: &[ratatui::buffer::Cell]| cells.iter().map(|cell| cell.symbol()).collect::<String>();
    rows.map(|cells| format!("|{}\n", row(cells).trim_end())).collect()
}

fn shop() -> Model {
    let mut model = Model::new("shop-1", vec!["memcached".into()]);
    let at = Duration::from_secs;
    model.apply(Update::Console(b"memcached: port 11211\n[  0.001234] warn  no entropy\n".to_vec()), at(0));
    model.apply(Update::Prices(prices(3, 1.0, 0.0)), at(0));
    (1..=12).for_each(|second| model.apply(fresh(status(second * 2)), at(second)));
    model.apply(Update::Prices(prices(4, 10.0, 0.0)), at(6));
    model
}

fn check(actual: &str, expected: &Expect) {
    expected.assert_eq(actual);
}

#[test]
fn a_usual_terminal_shows_everything() {
    check(
        &screen(&shop(), 12, 90, 20),
        &expect![[r#"
            | shop-1  profit 3.50 $/s, 84.0 $ so far
            | memcached ───────────────────────────────────────────────────────────────────────────────
            | working point W 40 us, polls, 1 core, 12.0 MiB
            | price used    10 $/Gbit out (revision 3 of 4)
            | throughput    64,000 requests/s, 352 Mbit/s out, 32.0 Mbit/s in              ▅▅▅▆▆▆▆▇▇▇▇█
            | latency       399 us mean, 800 us p99                                        ████████████
            | jitter        121 us                                                         ████████████
            | profit        3.50 $/s: 7.00 paid, 3.50 owed                                 ████████████
            | so far        84.0 $
            | prices: schedule, confirmed 6 s ago ─────────────────────────────────────────────────────
            | network out   10 $/Gbit                                                     ▁▁▁▁▁▁███████
            | cores         0.0125 $/core-second                                          █████████████
            | console ─────────────────────────────────────────────────────────────────────────────────
            |memcached: port 11211
            |[  0.001234] warn  no entropy
            |
            |
            |
            |
            | q: end the machine
        "#]],
    );
}

#[test]
fn before_anything_is_heard_the_screen_says_so() {
    let model = Model::new("shop-1", vec!["memcached".into()]);
    check(
        &screen(&model, 0, 60, 8),
        &expect![[r#"
            | shop-1  nothing reported yet
            | no prices yet
            | memcached: no report yet
            | console ───────────────────────────────────────────────────
            |
            |
            |
            | q: end the machine
        "#]],
    );
}

#[test]
fn without_a_contract_what_is_served_and_its_cost_are_shown() {
    use nom_proto::status::{Solvency, State, Status};
    let mut model = Model::new("shop-1", Vec::new());
    model.apply(Update::Prices(prices(3, 1.0, 0.0)), Duration::from_secs(0));
    let solvency = Solvency { state: State::NoContract, ..Solvency::default() };
    let served = Status { solvency, revenue_per_second: 0.0, profit: -7.0, ..status(2) };
    model.apply(fresh(served), Duration::from_secs(2));
    check(
        &screen(&model, 2, 80, 12),
        &expect![[r#"
            | shop-1  costs 3.50 $/s, 7.00 $ so far
            | memcached ─────────────────────────────────────────────────────────────────────
            | working point W 40 us, polls, 1 core, 12.0 MiB
            | price used    10 $/Gbit out
            | throughput    42,000 requests/s, 352 Mbit/s out, 32.0 Mbit/s in               █
            | latency       399 us mean, 800 us p99                                         █
            | jitter        121 us                                                          █
            | cost          3.50 $/s, no contract: nobody pays                              █
            | so far        7.00 $
            | console ───────────────────────────────────────────────────────────────────────
            |
            | q: end the machine
        "#]],
    );
}

#[test]
fn a_contract_that_cannot_pay_is_said_to() {
    use nom_proto::status::{Solvency, State, Status};
    let mut model = shop();
    let solvency = Solvency { state: State::CostsMore, ..Solvency::default() };
    let loss = Status { solvency, revenue_per_second: 1.0, profit: -20.0, ..status(30) };
    model.apply(fresh(loss), Duration::from_secs(13));
    check(
        &screen(&model, 13, 80, 12),
        &expect![[r#"
        | shop-1  profit -2.50 $/s, -20.0 $ so far
        | memcached: each request costs more than it brings; docs/earn.md: `refuse`
        | memcached ─────────────────────────────────────────────────────────────────────
        | working point W 40 us, polls, 1 core, 12.0 MiB
        | price used    10 $/Gbit out (revision 3 of 4)
        | throughput    70,000 requests/s, 352 Mbit/s out, 32.0 Mbit/s in   ▄▅▅▅▅▅▆▆▆▆▇▇█
        | latency       399 us mean, 800 us p99                             █████████████
        | jitter        121 us                                              █████████████
        | profit        -2.50 $/s: 1.00 paid, 3.50 owed                     ████████████▅
        | so far        -20.0 $
        |
        | q: end the machine
    "#]],
    );
}

#[test]
fn a_narrow_terminal_has_no_histories() {
    check(
        &screen(&shop(), 12, 50, 16),
        &expect![[r#"
            | shop-1  profit 3.50 $/s, 84.0 $ so far
            | memcached ───────────────────────────────────────
            | working point W 40 us, polls, 1 core, 12.0 MiB
            | price used    10 $/Gbit out (revision 3 of 4)
            | throughput    64,000 requests/s, 352 Mbit/s out,
            | latency       399 us mean, 800 us p99
            | jitter        121 us
            | profit        3.50 $/s: 7.00 paid, 3.50 owed
            | so far        84.0 $
            | console ─────────────────────────────────────────
            |memcached: port 11211
            |[  0.001234] warn  no entropy
            |
            |
            |
            | q: end the machine
        "#]],
    );
}

#[test]
fn a_low_terminal_keeps_what_matters_most() {
    check(
        &screen(&shop(), 12, 60, 5),
        &expect![[r#"
            | shop-1  profit 3.50 $/s, 84.0 $ so far
            | memcached ─────────────────────────────────────────────────
            | working point W 40 us, polls, 1 core, 12.0 MiB
            | price used    10 $/Gbit out (revision 3 of 4)
            | q: end the machine
        "#]],
    );
    check(
        &screen(&shop(), 12, 60, 1),
        &expect![[r#"
            | shop-1  profit 3.50 $/s, 84.0 $ so far
        "#]],
    );
}

#[test]
fn stale_prices_and_losses_are_marked() {
    let mut model = shop();
    let loss = nom_proto::status::Status { revenue_per_second: 1.0, profit: -20.0, ..status(30) };
    model.apply(fresh(loss), Duration::from_secs(13));
    model.apply(Update::Lost("connection refused".into()), Duration::from_secs(14));
    check(
        &screen(&model, 80, 90, 20),
        &expect![[r#"
            | shop-1  profit -2.50 $/s, -20.0 $ so far
            | no connection to the provider, trying again: connection refused
            | memcached: no report for 67 s, it is stuck or gone
            | memcached ───────────────────────────────────────────────────────────────────────────────
            | working point W 40 us, polls, 1 core, 12.0 MiB
            | price used    10 $/Gbit out (revision 3 of 4)
            | throughput    70,000 requests/s, 352 Mbit/s out, 32.0 Mbit/s in
            | latency       399 us mean, 800 us p99
            | jitter        121 us
            | profit        -2.50 $/s: 1.00 paid, 3.50 owed
            | so far        -20.0 $
            | prices: STALE: schedule, confirmed 74 s ago ─────────────────────────────────────────────
            | network out   10 $/Gbit                                           ███████████████████████
            | cores         0.0125 $/core-second                                ███████████████████████
            | console ─────────────────────────────────────────────────────────────────────────────────
            |memcached: port 11211
            |[  0.001234] warn  no entropy
            |
            |
            | q: end the machine
        "#]],
    );
}

#[test]
fn no_size_is_too_small() {
    let model = shop();
    for width in [0, 1, 2, 3, 10, 29, 31, 75, 300] {
        for height in 0..30 {
            screen(&model, 12, width, height);
        }
    }
}
