use super::*;
use crate::metered::Traffic;
use crate::still::Still;
use nom_net::batch::{Tallies, Tally};
use nom_rt::EventLoop;
use proptest::prelude::*;
use std::rc::Rc;

/// The desk of server `index` of those that share `control`, with something to say.
fn desk(control: &Arc<Control>, index: usize) -> Desk {
    let core = EventLoop::new(0, Still, Still, Arc::new(Still));
    let mut desk = Desk::new(control.clone(), index, core.handle().clone());
    let mut snapshot = Snapshot {
        servers: 1,
        requests: 100,
        governing_ns: 70,
        delay_ns: 20_000,
        stack: vec![("frames_received", 7), ("dropped_checksum", 3)],
        traffic: Traffic { sent_bytes: 5_000, ..Traffic::default() },
        ..Snapshot::default()
    };
    snapshot.batches[1] = Tallies { time: Tally { flushes: 4, packets: 9 }, ..Tallies::default() };
    [10, 20, 30].into_iter().for_each(|ns| snapshot.latencies.latency.record(ns));
    desk.refresh(snapshot);
    desk
}

/// What comes back for `pieces` of a stream, and whether the connection goes on.
fn ask(desk: &mut Desk, pieces: &[&[u8]]) -> (String, Stream) {
    let (mut reply, mut input, mut flow) = (Reply::default(), Vec::new(), Stream::Open);
    for piece in pieces {
        flow = desk.received(&mut input, Slice::new(Rc::<[u8]>::from(*piece)), &mut reply);
    }
    (String::from_utf8(reply.copied().to_vec()).expect("text"), flow)
}

fn request(desk: &mut Desk, method: &str, path: &str, body: &str) -> String {
    let len = body.len();
    let text = format!("{method} {path} HTTP/1.1\r\nHost: nom\r\nContent-Length: {len}\r\n\r\n{body}");
    ask(desk, &[text.as_bytes()]).0
}

#[test]
fn what_services_count_by_themselves_is_told_as_their_sum() {
    let control = Control::new(9999, 2);
    let mut desks = [desk(&control, 0), desk(&control, 1)];
    for (desk, count) in desks.iter_mut().zip([3, 4]) {
        let mut snapshot = Snapshot { servers: 1, ..Snapshot::default() };
        snapshot.own.counter("kv_puts_total", "Values stored.", count);
        snapshot.own.gauge("kv_bytes", "Bytes kept.", 10 * count);
        desk.refresh(snapshot);
    }
    let page = request(&mut desks[1], "GET", "/metrics", "");
    let counter = "# HELP kv_puts_total Values stored.\n# TYPE kv_puts_total counter\nkv_puts_total 7\n";
    assert!(page.contains(counter) && page.contains("# TYPE kv_bytes gauge\nkv_bytes 70\n"), "{page}");
}

#[test]
fn the_delay_is_read_and_set() {
    let control = Control::new(9999, 2);
    let (mut one, mut other) = (desk(&control, 0), desk(&control, 1));
    assert!(request(&mut one, "GET", "/batching-delay", "").ends_with("\r\n\r\n20\n"));
    assert_eq!(one.order(), None);
    for (body, micros) in [("0", 0), ("150\n", 150), ("10000", 10_000), ("150", 150), ("150", 150)] {
        let answer = request(&mut one, "PUT", "/batching-delay", body);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with(&format!("\n{micros}\n")));
        for desk in [&mut one, &mut other] {
            let delay = Some(Duration::from_micros(micros));
            assert_eq!(desk.order(), Some(Order { delay, ..Order::default() }), "all are told");
            assert_eq!(desk.order(), None, "and once");
        }
    }
}

#[test]
fn a_delay_that_is_none_is_refused_by_name() {
    let mut desk = desk(&Control::new(9999, 1), 0);
    for body in ["", "10001", "-1", "+1", "1.5", "soon", "99999999999999999999", "\u{ff11}"] {
        let answer = request(&mut desk, "PUT", "/batching-delay", body);
        let escaped = body.as_bytes().escape_ascii();
        let expected = format!("batching delay `{escaped}`: expected microseconds from 0 to 10000\n");
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.ends_with(&expected), "{answer}");
        assert_eq!(desk.order(), None);
    }
}

#[test]
fn cores_are_ordered_of_all_if_they_can_be_given_back() {
    let control = Control::new(9999, 3);
    let mut desks = [0, 1, 2].map(|index| desk(&control, index));
    assert!(request(&mut desks[1], "GET", "/cores", "").ends_with("\r\n\r\n3\n"));
    let refused = request(&mut desks[1], "PUT", "/cores", "1");
    assert!(refused.starts_with("HTTP/1.1 409 Conflict\r\n"), "{refused}");
    control.lend();
    for (body, cores) in [("1", 1), ("0\n", 0), ("3", 3), ("3", 3)] {
        let answer = request(&mut desks[1], "PUT", "/cores", body);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with(&format!("\n{cores}\n")));
        for desk in &mut desks {
            assert_eq!(desk.order(), Some(Order { cores: Some(cores), ..Order::default() }), "all are told");
            assert_eq!(desk.order(), None, "and once");
        }
    }
    for body in ["", "4", "-1", "all"] {
        let answer = request(&mut desks[2], "PUT", "/cores", body);
        assert!(answer.ends_with(&format!("cores `{body}`: expected a number from 0 to 3\n")), "{answer}");
        assert_eq!(desks[0].order(), None);
    }
    control.set_serving(2);
    assert!(request(&mut desks[0], "GET", "/cores", "").ends_with("\r\n\r\n2\n"));
    assert!(request(&mut desks[0], "GET", "/metrics", "").contains("\nnom_cores_serving 2\n"));
}

#[test]
fn a_governor_is_held_and_let_go() {
    let control = Control::new(9999, 2);
    let mut desks = [0, 1].map(|index| desk(&control, index));
    assert!(request(&mut desks[0], "GET", "/governor", "").ends_with("\r\n\r\non\n"));
    for (body, hold) in [("off", true), (" on\n", false), ("off\n", true)] {
        let answer = request(&mut desks[1], "PUT", "/governor", body);
        assert!(answer.ends_with(&format!("\r\n\r\n{}\n", body.trim())), "{answer}");
        for desk in &mut desks {
            assert_eq!(desk.order(), Some(Order { hold: Some(hold), ..Order::default() }), "all are told");
            assert_eq!(desk.order(), None, "and once");
        }
    }
    assert!(request(&mut desks[0], "GET", "/governor", "").ends_with("\r\n\r\noff\n"));
    for body in ["", "0", "held"] {
        let answer = request(&mut desks[0], "PUT", "/governor", body);
        assert!(answer.ends_with(&format!("governor `{body}`: expected on or off\n")), "{answer}");
        assert_eq!(desks[0].order(), None);
    }
}

#[test]
fn what_is_not_there_is_named() {
    let mut desk = desk(&Control::new(9999, 1), 0);
    for (method, path, status) in [
        ("GET", "/", "404 Not Found"),
        ("GET", "/metric", "404 Not Found"),
        ("DELETE", "/batching-delay", "405 Method Not Allowed"),
        ("PUT", "/metrics", "405 Method Not Allowed"),
    ] {
        let answer = request(&mut desk, method, path, "");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{answer}");
    }
    assert!(
        request(&mut desk, "GET", "/what", "")
            .ends_with("/what: expected one of /metrics, /batching-delay, /cores, /governor and /grid\n")
    );
}

#[test]
fn metrics_are_those_of_all_servers() {
    let control = Control::new(9999, 2);
    let (mut one, _other) = (desk(&control, 0), desk(&control, 1));
    let (page, flow) = ask(&mut one, &[b"GET /metrics?x HTTP/1.0\r\n\r\n"]);
    assert_eq!(flow, Stream::Close, "HTTP/1.0 has one request a connection");
    for line in [
        "nom_cores 2",
        "nom_requests_total 200",
        "nom_governing_nanoseconds_total 140",
        "nom_sent_bytes_total 10000",
        "nom_batching_delay_seconds 0.000020000",
        "nom_latency_seconds{quantile=\"0.5\"} 0.000000020",
        "nom_latency_seconds_count 6",
        "nom_latency_seconds_sum 0.000000120",
        "nom_latency_seconds_mean 0.000000020",
        "nom_service_latency_seconds{quantile=\"0.999\"} 0.000000000",
        "nom_batch_packets_total{direction=\"sent\",reason=\"time\"} 18",
        "nom_dropped_total{reason=\"checksum\"} 6",
        "nom_stack_total{event=\"frames_received\"} 14",
    ] {
        assert!(page.lines().any(|is| is == line), "{line} is not in {page}");
    }
}

/// As Prometheus reads it: each sample's family was described, once, before it.
#[test]
fn the_page_is_prometheus_text() {
    let mut desk = desk(&Control::new(9999, 1), 0);
    let answer = request(&mut desk, "GET", "/metrics", "");
    let (_, page) = answer.split_once("\r\n\r\n").expect("a body");
    let mut families = Vec::new();
    for line in page.lines() {
        if let Some(described) = line.strip_prefix("# TYPE ") {
            let (name, _kind) = described.split_once(' ').expect("name and kind");
            assert!(!families.contains(&name), "{name} is described twice");
            families.push(name);
        } else if !line.starts_with("# HELP ") {
            let (name, value) = line.rsplit_once(' ').expect("name and value");
            let name = name.split('{').next().expect("a name");
            let is_of = |family: &&str| matches!(name.strip_prefix(*family), Some("" | "_sum" | "_count"));
            assert!(families.last().is_some_and(is_of), "{name} is not described");
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
    assert!(families.len() > 20);
}

#[test]
fn requests_follow_each_other_until_one_is_the_last_or_makes_no_sense() {
    let mut desk = desk(&Control::new(9999, 1), 0);
    let get = "GET /batching-delay HTTP/1.1\r\nHost: nom\r\n\r\n";
    let last = "GET /batching-delay HTTP/1.1\r\nConnection: close\r\n\r\n";
    let (answers, flow) = ask(&mut desk, &[format!("{get}{get}{last}{get}").as_bytes()]);
    assert_eq!((answers.matches("HTTP/1.1 200 OK").count(), flow), (3, Stream::Close));
    for nonsense in [
        "\0\r\n\r\n",
        "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "PUT / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
    ] {
        let (answer, flow) = ask(&mut desk, &[nonsense.as_bytes()]);
        assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n") && flow == Stream::Close, "{answer}");
    }
    let endless =
        format!("PUT / HTTP/1.1\r\nContent-Length: {}\r\n\r\n{}", u64::MAX, "x".repeat(REQUEST_MAX));
    let (answer, flow) = ask(&mut desk, &[endless.as_bytes()]);
    assert!(answer.starts_with("HTTP/1.1 413 ") && flow == Stream::Close);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_request_may_be_cut_anywhere(cut in 0usize..90) {
        let text = b"PUT /batching-delay HTTP/1.1\r\nHost: nom\r\ncontent-length: 3\r\n\r\n150";
        let cut = cut.min(text.len());
        let mut desk = desk(&Control::new(9999, 1), 0);
        let (answer, flow) = ask(&mut desk, &[&text[..cut], &text[cut..]]);
        prop_assert!(answer.ends_with("\r\n\r\n150\n") && flow == Stream::Open, "{}", answer);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = ask(&mut desk(&Control::new(9999, 1), 0), &[&bytes]);
    }
}

#[test]
fn a_grid_is_told_and_changed_for_all_or_refused_with_a_reason() {
    let control = Control::new(9999, 2);
    let mut desks = [desk(&control, 0), desk(&control, 1)];
    assert!(request(&mut desks[0], "PUT", "/grid", "at input fair").starts_with("HTTP/1.1 409 "));
    let rules: Arc<Rules> = Arc::new("gold key=g".parse().unwrap());
    let plan: GridPlan = "at input fair; for gold weight=2".parse().unwrap();
    desks.iter_mut().for_each(|desk| desk.set_plan(plan.clone(), rules.clone()));
    assert!(request(&mut desks[0], "GET", "/grid", "").contains("for gold weight=2\n"));
    for (change, why) in [
        ("for gold weight=0", "`weight=0`"),
        ("for silver weight=3", "`silver`: expected an activity"),
        ("at input round-robin", "`weight` of `gold`: no scheduler goes by it"),
        ("\u{1}", "expected at RESOURCE SCHEDULER"),
    ] {
        let answer = request(&mut desks[1], "PUT", "/grid", change);
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains(why), "{answer}");
        assert!(desks.iter_mut().all(|desk| desk.order().is_none()));
    }
    let by_contract = "at input profit; for gold earns=contract";
    let answer = request(&mut desks[1], "PUT", "/grid", by_contract);
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("expected a `utility`"), "{answer}");
    desks[0].set_paid(rules.names().map(|name| name == "gold").collect());
    let answer = request(&mut desks[0], "PUT", "/grid", "at input profit; for others earns=contract");
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("`others` earns by"), "{answer}");
    let answer = request(&mut desks[0], "PUT", "/grid", by_contract);
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("for gold earns=contract"), "{answer}");
    assert!(desks.iter_mut().all(|desk| desk.order().is_some_and(|order| order.grid.is_some())));
    let answer = request(&mut desks[1], "PUT", "/grid", "for gold weight=7\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("at input fair metric=time"));
    let expected = Some(Arc::new(plan.changed("for gold weight=7").unwrap()));
    for desk in &mut desks {
        assert_eq!(desk.order(), Some(Order { grid: expected.clone(), ..Order::default() }));
        assert_eq!(desk.order(), None, "and once");
    }
}
