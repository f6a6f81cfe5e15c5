//! Runs of the protocol: played from a script in pieces, and by Debian's `NPtcp` on loopback.

use nom_netpipe_core::{Options, ProtocolError, Session, Sizes};
use nom_port::buffer::Slice;
use nom_service::Stream;
use proptest::prelude::*;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

type Bytes = Arc<[u8]>;

/// What a transmitter sends and must get back in a run that repeats each message `count` times, one stream
/// for each connection.
fn script(options: &Options, count: u32) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut streams = vec![(Vec::new(), Vec::new())];
    let mut both = |streams: &mut Vec<(Vec<u8>, Vec<u8>)>, word: &[u8], returned: bool| {
        let (sent, back) = streams.last_mut().expect("there is one");
        sent.extend_from_slice(word);
        back.extend_from_slice(if returned { word } else { &[] });
    };
    let reset = |streams: &mut Vec<_>, both: &mut dyn FnMut(&mut Vec<_>, &[u8], bool)| {
        if options.reset {
            both(streams, b"QUIT\0", true);
            streams.push((Vec::new(), Vec::new()));
        }
    };
    let message = |size: u64| (0..size).map(|byte| byte as u8).collect::<Vec<u8>>();
    both(&mut streams, b"SyncMe", true);
    (0..100).for_each(|_| both(&mut streams, &message(options.first.into()), true));
    both(&mut streams, b"SyncMe", true);
    reset(&mut streams, &mut both);
    for size in Sizes::new(options.first, options.last, options.perturbation) {
        both(&mut streams, b"SyncMe", true);
        both(&mut streams, &count.to_be_bytes(), false);
        for _ in 0..options.trials {
            both(&mut streams, b"SyncMe", true);
            (0..count).for_each(|_| both(&mut streams, &message(size), !options.streaming));
            reset(&mut streams, &mut both);
        }
        if options.streaming {
            // A message took 5 microseconds: 500 times 10 ns.
            streams.last_mut().expect("there is one").1.extend_from_slice(&500u32.to_be_bytes());
        }
    }
    both(&mut streams, b"QUIT\0", true);
    streams
}

/// Plays a run in pieces of the given lengths.
fn play(options: &Options, count: u32, lens: &[usize]) -> Result<(), TestCaseError> {
    let mut session = Session::<Bytes>::new(options.clone());
    let mut lens = lens.iter().cycle();
    let mut now = 0;
    for (sent, back) in script(options, count) {
        let (mut rest, mut got, mut flow) = (&sent[..], Vec::new(), Stream::Open);
        prop_assert!(!session.is_finished());
        session.connected(&mut got);
        while !rest.is_empty() {
            let (piece, after) = rest.split_at((*lens.next().expect("it cycles")).min(rest.len()));
            now += 1;
            flow =
                session.receive(Slice::new(Bytes::from(piece)), now, &mut got).expect("the script is right");
            rest = after;
        }
        prop_assert_eq!(flow, Stream::Close);
        prop_assert_eq!(got, back);
    }
    prop_assert!(session.is_finished());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_run_is_followed_however_it_is_cut(
        lens in proptest::collection::vec(1usize..2000, 1..6), first in 1u32..20, last in 20u32..700,
        perturbation in 0u32..5, count in 0u32..5, reset: bool,
    ) {
        let options = Options { first, last, perturbation, reset, ..Options::default() };
        play(&options, count, &lens)?;
    }

    #[test]
    fn any_bytes_are_survived(stream in proptest::collection::vec(any::<u8>(), 0..600)) {
        let mut session = Session::<Bytes>::new(Options::default());
        let sync = Slice::new(Bytes::from(&b"SyncMe"[..]));
        let _begun = session.receive(sync, 0, &mut Vec::new()).expect("it is the greeting");
        let mut back = Vec::new();
        let outcome = session.receive(Slice::new(Bytes::from(&stream[..])), 0, &mut back);
        prop_assert_eq!(&back[..back.len().min(100)], &stream[..stream.len().min(100)]);
        prop_assert!(outcome.is_ok() || stream.len() > 100);
    }
}

/// What a stream is answered, and how it ends, in pieces of `len` bytes.
fn replies(stream: &[u8], len: usize) -> (Vec<u8>, Result<Stream, ProtocolError>) {
    let mut session = Session::<Bytes>::new(Options::default());
    let mut sent = Vec::new();
    for piece in stream.chunks(len) {
        match session.receive(Slice::new(Bytes::from(piece)), 0, &mut sent) {
            Ok(Stream::Open) => {}
            end => return (sent, end),
        }
    }
    (sent, Ok(Stream::Open))
}

#[test]
fn the_corpus_is_answered_the_same_however_it_is_cut() {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let entries = std::fs::read_dir(corpus).expect("the corpus is there");
    let streams: Vec<Vec<u8>> = entries
        .map(|entry| std::fs::read(entry.expect("it can be listed").path()).expect("it can be read"))
        .collect();
    assert!(streams.len() >= 10, "only {} files", streams.len());
    for stream in streams {
        let whole = replies(&stream, usize::MAX);
        for len in [1, 2, 3, 5, 100] {
            assert_eq!(replies(&stream, len), whole, "{} in pieces of {len}", stream.escape_ascii());
        }
    }
}

#[test]
fn both_sides_send_at_once_if_asked_to() {
    let options =
        Options { first: 3, last: 3, perturbation: 0, trials: 1, bidirectional: true, ..Options::default() };
    let mut session = Session::<Bytes>::new(options);
    let mut say = |bytes: &[u8]| {
        let mut got = Vec::new();
        let _flow = session.receive(Slice::new(Bytes::from(bytes)), 0, &mut got).expect("it is right");
        got
    };
    let warmed_up = say(&[&b"SyncMe"[..], &b"abc".repeat(100), b"SyncMe", b"SyncMe"].concat());
    assert_eq!(warmed_up.len(), 18 + 300, "the warm-up goes there and back");
    assert_eq!(say(&3_u32.to_be_bytes()), b"");
    assert_eq!(say(b"SyncMe"), b"SyncMeaaa", "the first message comes unasked");
    assert_eq!(say(b"bcdbcd"), b"bcdbcd", "the others follow what has come");
    assert_eq!(say(b"efg"), b"", "three each way are all");
    assert_eq!(say(b"QUIT\0"), b"QUIT\0");
}

#[test]
fn a_streaming_run_is_timed() {
    // Pieces of six bytes come every 5 microseconds, and so do the beginning and the end of each trial.
    let options =
        Options { first: 6, last: 6, perturbation: 0, streaming: true, reset: true, ..Options::default() };
    let mut session = Session::<Bytes>::new(options.clone());
    let mut now = 0;
    for (sent, back) in script(&options, 1) {
        let mut got = Vec::new();
        session.connected(&mut got);
        for piece in sent.chunks(6) {
            now += 5000;
            let _flow = session.receive(Slice::new(Bytes::from(piece)), now, &mut got).expect("it is right");
        }
        assert_eq!(got, back);
    }
    assert!(session.is_finished());
}

#[test]
fn a_transmitter_with_other_options_is_told() {
    let mut session = Session::<Bytes>::new(Options::default());
    let receive = |session: &mut Session<Bytes>, bytes: &[u8]| -> Result<Stream, ProtocolError> {
        session.receive(Slice::new(Bytes::from(bytes)), 0, &mut Vec::new())
    };
    let error = receive(&mut session, b"GET / HTTP/1.1").unwrap_err();
    assert!(error.to_string().starts_with("expected SyncMe, got 'GET / '; both sides"), "{error}");
    let mut session = Session::<Bytes>::new(Options::default());
    let warmup = [&b"SyncMe"[..], &[b'a'; 200]].concat();
    assert!(receive(&mut session, &warmup).unwrap_err().to_string().contains("'aaaaaa'"));
}

/// A large message is answered in the buffers that it came in.
#[test]
fn messages_are_not_copied() {
    struct Shares(Vec<usize>);
    impl nom_port::buffer::Sink<Bytes> for Shares {
        fn copy(&mut self, _: &[u8]) {}
        fn share(&mut self, slice: Slice<Bytes>) {
            self.0.push(slice.as_ptr().addr());
        }
    }
    let mut session = Session::<Bytes>::new(Options { first: 1000, ..Options::default() });
    let mut shares = Shares(Vec::new());
    let buffer = Bytes::from([&b"SyncMe"[..], &[7; 1000]].concat());
    let _open = session.receive(Slice::new(buffer.clone()), 0, &mut shares).expect("it is right");
    assert_eq!(shares.0, [buffer[6..].as_ptr().addr()]);
}

fn nptcp() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join("NPtcp")).find(|path| path.is_file())
}

/// Lets Debian's transmitter make a run against the core on loopback.
fn nptcp_completes(arguments: &[&str]) {
    let Some(program) = nptcp() else {
        eprintln!("skipped: NPtcp is not installed (Debian: netpipe-tcp)");
        return;
    };
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let port = listener.local_addr().expect("it is bound").port().to_string();
    let known = arguments.iter().copied().scan(false, |after_n, argument| {
        let skip = std::mem::replace(after_n, argument == "-n") || argument == "-n";
        Some((!skip).then_some(argument))
    });
    let options = Options::parse(known.flatten()).expect("the test's options are right");
    let server = thread::spawn(move || serve(&listener, options));
    let common = ["-h", "127.0.0.1", "-P", &port, "-o", "/dev/null"];
    let output = Command::new("timeout").arg("60").arg(program).args(common).args(arguments).output();
    let output = output.expect("NPtcp starts");
    let report = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{report}");
    let measured = report.lines().filter(|line| line.contains("Mbps") || line.contains("passed")).count();
    let sizes = server.join().expect("the server does not panic");
    assert_eq!(measured, sizes, "{report}");
}

/// Serves one run and says how many sizes there were to be.
fn serve(listener: &TcpListener, options: Options) -> usize {
    let sizes = Sizes::new(options.first, options.last, options.perturbation).count();
    let mut session = Session::<Bytes>::new(options);
    let start = Instant::now();
    let mut buffer = vec![0; 65536];
    while !session.is_finished() {
        let (mut stream, _) = listener.accept().expect("the transmitter connects");
        stream.set_nodelay(true).expect("it is a TCP socket");
        let mut reply = Vec::new();
        session.connected(&mut reply);
        stream.write_all(&reply).expect("the transmitter reads");
        while let Ok(len @ 1..) = stream.read(&mut buffer) {
            reply.clear();
            let now = start.elapsed().as_nanos() as u64;
            let piece = Slice::new(Bytes::from(&buffer[..len]));
            let flow =
                session.receive(piece, now, &mut reply).expect("the transmitter keeps to the protocol");
            stream.write_all(&reply).expect("the transmitter reads");
            if flow == Stream::Close {
                break;
            }
        }
    }
    sizes
}

#[test]
fn nptcp_completes_its_whole_range() {
    nptcp_completes(&["-n", "2"]);
}

#[test]
fn nptcp_completes_with_its_own_repeat_counts() {
    nptcp_completes(&["-u", "12"]);
}

#[test]
fn nptcp_completes_its_integrity_check() {
    nptcp_completes(&["-i", "-n", "20", "-u", "100000"]);
}

#[test]
fn nptcp_completes_over_many_connections() {
    nptcp_completes(&["-r", "-n", "5", "-u", "1000"]);
}

#[test]
fn nptcp_completes_both_ways_at_once() {
    nptcp_completes(&["-2", "-n", "5", "-u", "1000"]);
}

#[test]
fn nptcp_completes_when_streaming() {
    nptcp_completes(&["-s", "-n", "50", "-u", "1000"]);
}
