//! Threads that ask the sources and offer what they say.

use super::fetch::Fetch;
use super::timeline::Timeline;
use super::{Kind, Polled, Source};
use crate::clock::Moment;
use crate::http::Shared;
use crate::ledger::{LedgerError, consumed_since};
use crate::price_book::{Standing, Taking};
use nom_proto::prices::{Price, Resource};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use time::{OffsetDateTime, Time};

/// Where messages for people go.
pub(crate) type Log = fn(&str);

/// The threads of all sources; they end when this is dropped, those that wait for an answer after it.
#[derive(Debug)]
pub(crate) struct Running {
    _stops: Vec<Sender<()>>,
}

/// Starts asking. Prices of a timeline that begin at once are there when this returns.
///
/// # Errors
/// If the system refuses a thread.
pub(crate) fn start(sources: Vec<Source>, shared: &Arc<Shared>, log: Log) -> std::io::Result<Running> {
    let mut stops = Vec::new();
    for (index, source) in sources.into_iter().enumerate() {
        let (stop, stopped) = channel();
        stops.push(stop);
        let worker = Worker { index, name: source.name.clone(), shared: shared.clone(), stopped, log };
        if let Kind::Timeline(timeline) = &source.kind {
            worker.begin(timeline);
        }
        let name = format!("source {index}");
        std::thread::Builder::new().name(name).spawn(move || worker.run(&source.kind))?;
    }
    Ok(Running { _stops: stops })
}

struct Worker {
    index: usize,
    name: String,
    shared: Arc<Shared>,
    stopped: Receiver<()>,
    log: Log,
}

impl Worker {
    fn run(&self, kind: &Kind) {
        match kind {
            Kind::Timeline(timeline) => self.play(timeline),
            Kind::Polled(polled) => self.poll(polled),
        }
    }

    fn begin(&self, timeline: &Timeline) {
        timeline.steps().take_while(|step| step.at.is_zero()).for_each(|step| self.set(&step.prices));
    }

    fn play(&self, timeline: &Timeline) {
        let start = Instant::now();
        for step in timeline.steps().skip_while(|step| step.at.is_zero()) {
            if !self.wait((start + step.at).saturating_duration_since(Instant::now())) {
                return;
            }
            self.set(&step.prices);
        }
    }

    fn set(&self, prices: &[(Resource, f64)]) {
        let now = Moment::now();
        let (_, refused) = self.shared.prices.offer(prices, Standing::Lasting, Taking::Each, now);
        self.note(true, refused.first().map(ToString::to_string), now);
    }

    fn poll(&self, polled: &Polled) {
        let fetch = Fetch::new(polled.timeout);
        loop {
            self.ask(polled, &fetch);
            if !self.wait(polled.every) {
                return;
            }
        }
    }

    fn ask(&self, polled: &Polled, fetch: &Fetch) {
        if polled.adapter.counts_usage() {
            match self.sent_this_month() {
                Ok(bytes) => polled.adapter.used(bytes),
                Err(error) => return self.note(false, Some(error.to_string()), Moment::now()),
            }
        }
        let quotes = match polled.adapter.ask(fetch) {
            Ok(quotes) => quotes,
            Err(error) => return self.note(false, Some(error.to_string()), Moment::now()),
        };
        let now = Moment::now();
        // Quotes of one answer are equally old, and what changes together is one revision.
        let age = quotes.iter().map(|quote| quote.age).max().unwrap_or_default();
        let standing = Standing::Observed { age_ns: u64::try_from(age.as_nanos()).unwrap_or(u64::MAX) };
        let offers: Vec<_> = quotes.iter().map(|quote| (quote.resource, quote.dollars)).collect();
        let (_, refused) = self.shared.prices.offer(&offers, standing, Taking::Each, now);
        let next: Vec<Price> = quotes
            .iter()
            .filter_map(|quote| {
                let (dollars, since_unix_ns) =
                    quote.next.filter(|(dollars, _)| dollars.is_finite() && *dollars > 0.0)?;
                Some(Price { resource: quote.resource, dollars, since_unix_ns })
            })
            .collect();
        self.shared.prices.announce(&next);
        let problem =
            refused.first().map(|refused| format!("field `{}`: {refused}", quotes[refused.index].field));
        self.note(true, problem, now);
    }

    /// Bytes that left all machines since the begin of the month (UTC), as the ledger has it.
    fn sent_this_month(&self) -> Result<u64, LedgerError> {
        let begin = month_begin_unix_ns(Moment::now().unix_ns);
        let since = move |connection: &_| consumed_since(connection, Resource::NetworkOut, begin);
        let bytes = self.shared.ledger.ask_and_wait(since)?;
        // No tier of a price is beyond that.
        Ok(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    fn note(&self, answered: bool, problem: Option<String>, now: Moment) {
        let message = problem.as_ref().map(|problem| format!("{}: {problem}", self.name));
        if self.shared.journal.note(self.index, answered, problem, now) {
            (self.log)(&message.expect("only a problem is news"));
        }
    }

    /// Waits, but for the end; `false` if that has come.
    fn wait(&self, time: Duration) -> bool {
        matches!(self.stopped.recv_timeout(time), Err(RecvTimeoutError::Timeout))
    }
}

/// When the month of a time began (UTC); 0 for times that are in no calendar.
fn month_begin_unix_ns(unix_ns: u64) -> u64 {
    let time = OffsetDateTime::from_unix_timestamp((unix_ns / 1_000_000_000) as i64).ok();
    let begin = time.and_then(|time| time.replace_day(1).ok()).map(|day| day.replace_time(Time::MIDNIGHT));
    begin.map_or(0, |begin| begin.unix_timestamp().max(0) as u64 * 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_begins_at_its_first_midnight() {
        // 2024-02-29T23:00:00Z and 2024-02-01T00:00:00Z.
        assert_eq!(month_begin_unix_ns(1_709_247_600_000_000_007), 1_706_745_600_000_000_000);
        assert_eq!(month_begin_unix_ns(u64::MAX), month_begin_unix_ns(u64::MAX), "no panic");
    }
}
