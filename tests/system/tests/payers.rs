//! Who pays for what a server does, on a real machine: every request, frame and byte has one payer, and so
//! has all the cores' time.

use nom_system_tests::{Guest, Server};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// What the control port tells.
struct Told(String);

impl Told {
    fn ask(server: &Server) -> Told {
        let mut control = TcpStream::connect((server.address.ip(), 9999)).expect("the control port");
        control.write_all(b"GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n").expect("it is sent");
        let mut text = String::new();
        control.read_to_string(&mut text).expect("text");
        Told(text)
    }

    /// The sum of all lines whose metric begins so.
    fn sum(&self, metric: &str) -> u64 {
        let lines = self.0.lines().filter_map(|line| line.strip_prefix(metric));
        lines.map(|rest| rest.rsplit(' ').next().expect("a value").parse::<u64>().expect("a number")).sum()
    }

    fn of(&self, metric: &str, activity: &str) -> u64 {
        self.sum(&format!("nom_activity_{metric}{{activity=\"{activity}\"}}"))
    }
}

/// Asks for values of keys that begin so, `requests` of them, a few at a time.
fn ask(mut stream: TcpStream, prefix: &str, requests: usize) {
    for first in (0..requests).step_by(5) {
        let text: String = (first..first + 5).map(|number| format!("get {prefix}{number}\r\n")).collect();
        stream.write_all(text.as_bytes()).expect("it is sent");
        let mut answer = [0; 25];
        stream.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, "END\r\n".repeat(5).as_bytes());
    }
}

fn everything_has_a_payer(cores: u32) {
    let guest = Guest::bundle("tests/system/manifests/activities.toml");
    let guest = if cores > 1 { guest.arguments(&["-t", "2"]) } else { guest };
    Server::on_cores(&format!("payers{cores}"), guest, 11211, cores, |server| {
        let before = Told::ask(server);
        let mut kept = server.connect();
        kept.write_all(b"set g:1 0 0 3\r\n").expect("it is sent");
        std::thread::sleep(Duration::from_millis(20));
        kept.write_all(b"abc\r\n").expect("it is sent");
        kept.read_exact(&mut [0; 8]).expect("it is stored");
        std::thread::scope(|scope| {
            for (prefix, requests) in [("g:none", 1000), ("s:", 500), ("x", 100), ("s:", 500)] {
                let stream = server.connect();
                scope.spawn(move || ask(stream, prefix, requests));
            }
        });
        // What other cores say is a little old.
        std::thread::sleep(Duration::from_millis(1200));
        let told = Told::ask(server);
        let requests = |activity| told.of("requests_total", activity) - before.of("requests_total", activity);
        assert_eq!(
            [requests("gold"), requests("silver"), requests("others")],
            [1001, 1000, 100],
            "{}",
            told.0
        );
        assert_eq!((requests("infrastructure"), requests("governing")), (0, 0));
        for (all, of) in [
            ("nom_received_bytes_total ", "nom_activity_received_bytes_total{"),
            ("nom_received_frames_total ", "nom_activity_received_frames_total{"),
            ("nom_sent_bytes_total ", "nom_activity_sent_bytes_total{"),
            ("nom_sent_frames_total ", "nom_activity_sent_frames_total{"),
        ] {
            // The frame that asked for this is not charged yet, of each core.
            let (all, of) = (told.sum(all), told.sum(of));
            assert!(all - of <= 1600 * u64::from(cores), "{all} and {of}: {}", told.0);
        }
        let event = |name| told.sum(&format!("nom_loop_total{{event=\"{name}\"}}"));
        let (spinning, sleeping, elapsed) = (event("spinning_ns"), event("sleeping_ns"), event("elapsed_ns"));
        let charged = told.sum("nom_activity_core_nanoseconds_total{");
        assert_eq!(charged + spinning + sleeping, elapsed, "{}", told.0);
        for activity in ["infrastructure", "gold", "silver", "others"] {
            assert!(told.of("core_nanoseconds_total", activity) > 0, "{activity}: {}", told.0);
        }
        assert_eq!(told.sum("nom_activity_connections{activity=\"others\"}"), 1, "{}", told.0);
        drop(kept);
    });
}

#[test]
fn all_that_one_core_does_has_a_payer() {
    everything_has_a_payer(1);
}

#[test]
fn all_that_two_cores_do_has_a_payer() {
    everything_has_a_payer(2);
}

/// Each of three pays by another contract; a core and memory are held whether somebody uses them or not.
#[test]
fn what_activities_earn_is_what_the_application_earns() {
    let guest = Guest::bundle("tests/system/manifests/activities-earn.toml");
    Server::on_cores("payers-earn", guest, 11211, 1, |server| {
        let dollars = |told: &Told, metric: &str| -> f64 {
            let line = told.0.lines().find_map(|line| line.strip_prefix(metric));
            line.expect("it is told").trim().parse().expect("a number")
        };
        let of = |told: &Told, metric: &str, activity: &str| {
            dollars(told, &format!("nom_activity_{metric}{{activity=\"{activity}\"}} "))
        };
        while dollars(&Told::ask(server), "nom_unused_cost_dollars ") == 0.0 {
            std::thread::sleep(Duration::from_millis(100));
        }
        std::thread::scope(|scope| {
            for (prefix, requests) in [("g:none", 2000), ("s:", 1000), ("x", 500)] {
                let stream = server.connect();
                scope.spawn(move || ask(stream, prefix, requests));
            }
        });
        std::thread::sleep(Duration::from_millis(2500));
        let told = Told::ask(server);
        let all = ["infrastructure", "governing", "others", "gold", "silver"];
        let earned: f64 = all.iter().map(|activity| of(&told, "profit_dollars", activity)).sum();
        let sum = earned - dollars(&told, "nom_unused_cost_dollars ");
        let profit = dollars(&told, "nom_profit_dollars ");
        let scale: f64 = all.iter().map(|activity| of(&told, "profit_dollars", activity).abs()).sum();
        assert!((sum - profit).abs() < 0.01 * scale, "{sum} and {profit}: {}", told.0);
        // What was held for nobody is the core's idle time, at its price; memory costs nothing here.
        let idle_ns = |event: &str| told.sum(&format!("nom_loop_total{{event=\"{event}\"}}")) as f64;
        let idle = (idle_ns("spinning_ns") + idle_ns("sleeping_ns")) * 1e-9 * 0.01;
        let unused = dollars(&told, "nom_unused_cost_dollars ");
        // Prices came a little after the core had begun.
        assert!((unused - idle).abs() < 0.1 * idle, "{unused} and {idle}: {}", told.0);
        let brings = |activity: &str| {
            of(&told, "profit_dollars", activity) + of(&told, "cost_dollars_total", activity)
        };
        let gbit = |activity: &str| 8e-9 * told.of("answered_bytes_total", activity) as f64;
        for (activity, expected) in
            [("gold", 0.01 * 2000.0), ("silver", 30.0 * gbit("silver")), ("others", 20.0 * gbit("others"))]
        {
            let told_of = brings(activity);
            assert!((told_of - expected).abs() < 0.01 * expected, "{activity}: {told_of} of {expected}");
        }
    });
}

#[test]
fn each_pays_what_its_consumption_costs() {
    let guest = Guest::bundle("tests/system/manifests/activities-priced.toml");
    Server::on_cores("payers-priced", guest, 11211, 1, |server| {
        let dollars = |told: &Told, activity: &str| -> f64 {
            let metric = format!("nom_activity_cost_dollars_total{{activity=\"{activity}\"}} ");
            let line = told.0.lines().find_map(|line| line.strip_prefix(&metric));
            line.expect("it is told").parse().expect("a number")
        };
        // Until prices are known, nothing costs anything.
        while dollars(&Told::ask(server), "infrastructure") == 0.0 {
            std::thread::sleep(Duration::from_millis(100));
        }
        ask(server.connect(), "g:none", 1000);
        // The window has ended, though nobody asks anything more.
        std::thread::sleep(Duration::from_millis(2500));
        let told = Told::ask(server);
        let of = |metric| told.of(metric, "gold") as f64;
        let gbit = |bytes| 8e-9 * of(bytes);
        let expected = of("core_nanoseconds_total") * 1e-9 * 0.01
            + gbit("sent_bytes_total") * 2.0
            + gbit("received_bytes_total") * 1.0;
        let cost = dollars(&told, "gold");
        assert!((cost - expected).abs() < 0.01 * expected, "{cost}, expected {expected}: {}", told.0);
    });
}

/// How long a question takes in the mean, of some in a row.
fn takes(server: &Server, prefix: &str) -> Duration {
    let mut stream = server.connect();
    let begun = Instant::now();
    for number in 0..QUESTIONS {
        stream.write_all(format!("get {prefix}{number}\r\n").as_bytes()).expect("it is sent");
        stream.read_exact(&mut [0; 5]).expect("an answer");
    }
    begun.elapsed() / QUESTIONS
}

const QUESTIONS: u32 = 40;

#[test]
fn who_is_not_held_is_answered_at_once_while_others_are_held() {
    let guest = Guest::bundle("tests/system/manifests/activities-held.toml");
    Server::on_cores("payers-held", guest, 11211, 1, |server| {
        let held = Duration::from_millis(5);
        let (gold, silver) = (takes(server, "g:"), takes(server, "s:"));
        assert!(silver >= held && gold < silver / 2, "{gold:?} and {silver:?}");
        let delays = |told: &Told| {
            ["gold", "silver"].map(|activity| {
                let metric = format!("nom_activity_batching_delay_seconds{{activity=\"{activity}\"}} ");
                let line = told.0.lines().find_map(|line| line.strip_prefix(&metric));
                line.expect("it is told").parse::<f64>().expect("seconds")
            })
        };
        let told = Told::ask(server);
        assert_eq!(delays(&told), [0.0, 0.005], "{}", told.0);
        let urgent = told.sum("nom_batch_flushes_total{direction=\"sent\",reason=\"urgent\"}");
        assert!(urgent >= QUESTIONS.into(), "{urgent}: {}", told.0);
        // Its owner has it held like others, and the others not at all.
        let change = "for gold delay=10000; for silver delay=0";
        let mut control = TcpStream::connect((server.address.ip(), 9999)).expect("the control port");
        let length = change.len();
        write!(
            control,
            "PUT /grid HTTP/1.1\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{change}"
        )
        .expect("it is sent");
        control.read_to_string(&mut String::new()).expect("text");
        let told = Told::ask(server);
        assert_eq!(delays(&told), [0.005, 0.0], "{}", told.0);
        let (gold, silver) = (takes(server, "g:"), takes(server, "s:"));
        assert!(gold >= held && silver < gold / 2, "{gold:?} and {silver:?}");
    });
}
