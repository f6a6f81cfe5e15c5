//! What a provider may answer `priced`: HTTP and its stream of events, in any pieces, on either connection.

use crate::input::Input;
use nom_priced_core::{Command, Daemon, Happening, Link, Loss, Source};

/// Commands that may follow one thing that happened.
const COMMANDS_MAX: usize = 20;

pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let mut daemon = Daemon::new(Source::Provider(([10, 0, 2, 2], 7007).into()), Some("key"), 7);
    let mut now_ns = 1_000;
    daemon.tick(now_ns);
    follow(&mut daemon);
    while !input.is_empty() {
        let choice = input.byte();
        let link = if choice & 8 == 0 { Link::Prices } else { Link::Reports };
        let happening = match choice & 7 {
            0 => Happening::Connected,
            1 => Happening::Closed(Loss::Finished),
            2 => {
                now_ns += 1 << (choice >> 4) << 22;
                daemon.tick(now_ns);
                follow(&mut daemon);
                continue;
            }
            _ => {
                let len = input.word() % 1024;
                Happening::Received(input.bytes(usize::from(len)))
            }
        };
        daemon.happened(now_ns, link, happening);
        follow(&mut daemon);
    }
}

/// Takes all that the daemon wants; what it publishes are prices.
fn follow(daemon: &mut Daemon) {
    for _ in 0..COMMANDS_MAX {
        let Some((_, command)) = daemon.command() else { break };
        if let Command::Send(bytes) = command {
            assert!(bytes.ends_with(b"\r\n") || bytes.ends_with(b"}"), "{}", bytes.escape_ascii());
        }
    }
    assert!(daemon.command().is_none(), "it commands for ever");
    while let Some(line) = daemon.line() {
        assert!(line.len() < 1000 && !line.contains('\n'), "{line:?}");
    }
    if let Some(publication) = daemon.publication() {
        for entry in publication.list.iter() {
            assert!(entry.dollars.is_finite() && entry.dollars >= 0.0, "{entry:?}");
        }
    }
}
