use super::*;

const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
const PRICES: &str = r#"{"revision":1,"source":"test","age_seconds":0.0,"prices":[]}"#;

/// A feed at a time, whose commands and news are kept as words.
struct Rig {
    feed: Feed,
    now_ns: u64,
}

impl Rig {
    /// One that was just connected.
    fn connected() -> Rig {
        let mut rig = Rig { feed: Feed::new("h:1", 5), now_ns: 1_000 };
        rig.feed.tick(rig.now_ns);
        rig.feed.happened(rig.now_ns, Happening::Connected);
        assert_eq!(rig.commands(), "connect GET /v1/prices/events");
        rig
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Rig {
        self.feed.happened(self.now_ns, Happening::Received(bytes));
        self
    }

    fn chunk(&mut self, text: &str) -> &mut Rig {
        self.bytes(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes())
    }

    fn closed(&mut self, loss: Loss) -> &mut Rig {
        self.feed.happened(self.now_ns, Happening::Closed(loss));
        self
    }

    /// Goes on to when something is due.
    fn wait(&mut self) -> &mut Rig {
        self.now_ns = self.feed.due_ns();
        self.feed.tick(self.now_ns);
        self
    }

    fn commands(&mut self) -> String {
        let word = |command| match command {
            Command::Connect => "connect".to_string(),
            Command::Drop => "drop".to_string(),
            Command::Send(bytes) => {
                let text = String::from_utf8(bytes).expect("a request");
                assert!(text.contains("\r\nHost: h:1\r\n") && text.ends_with("\r\n\r\n"), "{text}");
                text.split(" HTTP/1.1\r\n").next().expect("a request line").to_string()
            }
        };
        let words: Vec<String> = core::iter::from_fn(|| self.feed.command()).map(word).collect();
        words.join(" ")
    }

    fn news(&mut self) -> Vec<News> {
        core::iter::from_fn(|| self.feed.news()).collect()
    }
}

fn prices(revision: u64) -> News {
    News::Prices(Prices { revision, source: "test".into(), age_seconds: 0.0, prices: vec![], next: vec![] })
}

fn trouble(trouble: Trouble) -> Vec<News> {
    vec![News::State(State::Trouble(trouble))]
}

#[test]
fn events_bring_prices_and_comments_keep_them_alive() {
    let mut rig = Rig::connected();
    rig.bytes(HEAD.as_bytes()).chunk(&format!("event: prices\nid: 1\ndata: {PRICES}\n\n")).chunk(":\n\n");
    assert_eq!(rig.news(), [News::State(State::Following), prices(1), News::Alive]);
    rig.chunk("event: weather\ndata: rain\n\n");
    assert_eq!(rig.news(), [News::Alive], "an event that nobody knows is a sign of life");
    for _ in 0..20 {
        rig.now_ns = rig.feed.due_ns() - 1;
        rig.chunk(": ");
        rig.chunk("\n\n");
        assert_eq!(rig.news(), [News::Alive]);
    }
    assert_eq!(rig.wait().news(), trouble(Trouble::Silent));
    assert_eq!(rig.commands(), "drop");
    assert_eq!(rig.wait().commands(), "connect");
}

#[test]
fn bytes_that_never_become_an_item_are_silence() {
    let mut rig = Rig::connected();
    rig.bytes(HEAD.as_bytes()).chunk(&format!("event: prices\ndata: {PRICES}\n\n")).news();
    let due_ns = rig.feed.due_ns();
    for _ in 0..100 {
        rig.now_ns += SILENCE_NS / 200;
        rig.chunk("x");
    }
    assert_eq!(rig.feed.due_ns(), due_ns);
    rig.chunk(&"x".repeat(sse::BYTES_MAX));
    assert_eq!(rig.news(), trouble(Trouble::Event(sse::TooLong)));
}

#[test]
fn comments_without_prices_are_no_answer() {
    let mut rig = Rig::connected();
    rig.bytes(HEAD.as_bytes());
    for _ in 0..5 {
        rig.chunk(":\n\n");
    }
    assert_eq!(rig.wait().news(), trouble(Trouble::NotAnswered));
}

#[test]
fn without_events_the_prices_are_asked_for_now_and_then() {
    for answer in ["HTTP/1.1 404 Not Found\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>"]
    {
        let mut rig = Rig::connected();
        assert_eq!(rig.bytes(answer.as_bytes()).commands(), "drop connect");
        for round in 0..3 {
            rig.feed.happened(rig.now_ns, Happening::Connected);
            assert_eq!(rig.commands(), "GET /v1/prices");
            let length = PRICES.len();
            let head = format!("Content-Type: application/json\r\nContent-Length: {length}\r\n");
            rig.bytes(format!("HTTP/1.1 200 OK\r\n{head}\r\n{}", &PRICES[..9]).as_bytes());
            rig.bytes(&PRICES.as_bytes()[9..]);
            let expected = [News::State(State::Polling), prices(1)];
            assert_eq!(rig.news(), if round == 0 { &expected[..] } else { &expected[1..] });
            assert_eq!(rig.commands(), "drop");
            let asked_ns = rig.now_ns;
            assert_eq!(rig.wait().commands(), "connect");
            assert_eq!(rig.now_ns - asked_ns, POLL_NS);
        }
        // Once it fails, events are tried again.
        rig.closed(Loss::Refused).wait();
        rig.feed.happened(rig.now_ns, Happening::Connected);
        assert_eq!(rig.commands(), "drop connect GET /v1/prices/events");
    }
}

#[test]
fn an_answer_that_ends_with_its_connection_is_whole() {
    let mut rig = Rig::connected();
    rig.bytes(b"HTTP/1.1 501 No\r\n\r\n");
    rig.feed.happened(rig.now_ns, Happening::Connected);
    rig.bytes(format!("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{PRICES}").as_bytes());
    assert_eq!(rig.closed(Loss::Finished).news(), [News::State(State::Polling), prices(1)]);
}

#[test]
fn each_trouble_has_its_name() {
    let polled = |rest: &str| format!("HTTP/1.1 404 No\r\n\r\n|HTTP/1.1 200 OK\r\nContent-Type: {rest}");
    for (said, expected) in [
        ("HTTP/1.1 500 Oh\r\n\r\n<html>", "it answers with status 500"),
        ("<html>", "what it says is not HTTP"),
        (&polled("text/html\r\n\r\n<html>"), "it answers with `text/html`, expected `application/json`"),
        (
            &polled("application/json\r\nContent-Length: 2\r\n\r\n[]"),
            "its prices cannot be read: invalid length 0",
        ),
        (
            &polled(&format!("application/json\r\n\r\n{}", "x".repeat(70_000))),
            "it answers with more than 65536",
        ),
        (&format!("{HEAD}5\r\nabc!!no\r\n"), "its answer has a broken chunk"),
        (&format!("{HEAD}0\r\n\r\n"), "it ended its events"),
        (
            &format!("{HEAD}14\r\nevent: prices\ndata:x\r\n2\r\n\n\n\r\n"),
            "its prices cannot be read: expected value",
        ),
    ] {
        let mut rig = Rig::connected();
        for part in said.split('|') {
            rig.feed.happened(rig.now_ns, Happening::Connected);
            rig.bytes(part.as_bytes());
        }
        let news = rig.news();
        let [News::State(State::Trouble(trouble))] = &news[..] else { panic!("{said}: {news:?}") };
        assert!(trouble.to_string().starts_with(expected), "{trouble}");
    }
}

#[test]
fn tries_become_rarer_until_all_was_well_for_a_while() {
    let mut rig = Rig::connected();
    let mut told = rig.closed(Loss::Refused).news();
    for _ in 0..10 {
        told.extend(rig.wait().closed(Loss::Refused).news());
    }
    assert_eq!(told, trouble(Trouble::Lost(Loss::Refused)), "it is told once");
    let event = format!("event: prices\ndata: {PRICES}\n\n");
    let pause_after = |rig: &mut Rig, healthy_ns: u64| {
        rig.wait();
        rig.feed.happened(rig.now_ns, Happening::Connected);
        rig.bytes(HEAD.as_bytes()).chunk(&event);
        for _ in 0..healthy_ns / SECOND_NS {
            rig.now_ns += SECOND_NS;
            rig.chunk(":\n\n");
        }
        rig.closed(Loss::Finished);
        rig.feed.due_ns() - rig.now_ns
    };
    assert!(pause_after(&mut rig, 0) > SECOND_NS, "a provider that only says hello is not well");
    assert!(pause_after(&mut rig, HEALTHY_NS) < SECOND_NS);
}

#[test]
fn whatever_is_slow_is_given_up() {
    let mut rig = Rig { feed: Feed::new("h:1", 5), now_ns: 0 };
    assert_eq!(rig.wait().wait().news(), trouble(Trouble::NotAccepted));
    let mut rig = Rig::connected();
    rig.bytes(b"HTTP/1.1 200").wait();
    assert_eq!(rig.news(), trouble(Trouble::NotAnswered));
    rig.bytes(b" OK\r\n\r\n").closed(Loss::Reset);
    assert_eq!((rig.commands().as_str(), rig.news()), ("drop", vec![]), "what comes too late is nothing");
}
