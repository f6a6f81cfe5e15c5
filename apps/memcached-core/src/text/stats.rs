//! `stats` in the text protocol.

use super::{Words, send_line};
use crate::server::Server;
use crate::stats;
use lock_api::RawMutex;
use nom_port::buffer::{Buffer, Sink};

/// Answers `stats`, with or without a subcommand.
pub(super) fn send<B: Buffer, R: RawMutex>(
    server: &Server<B, R>,
    mut words: Words<'_>,
    sink: &mut impl Sink<B>,
) {
    let name = words.next().unwrap_or_default();
    if name == b"reset" {
        stats::reset(server);
        return send_line(sink, "RESET");
    }
    if name == b"detail" {
        return match words.next() {
            Some(b"dump") => sink.copy(stats::detail(server).as_bytes()),
            Some(word @ (b"on" | b"off")) => {
                stats::set_detail(server, word == b"on");
                send_line(sink, "OK");
            }
            _ => send_line(sink, "CLIENT_ERROR usage: stats detail on|off|dump"),
        };
    }
    let known = stats::each(server, name, &mut |name, value| {
        sink.copy(b"STAT ");
        sink.copy(name.as_bytes());
        sink.copy(b" ");
        send_line(sink, value);
    });
    send_line(sink, if known { "END" } else { "ERROR" });
}
