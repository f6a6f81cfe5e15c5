//! All of `priced` but its machine.

use crate::book::Book;
use crate::feed::{Feed, News, State};
use crate::reporter::Reporter;
use crate::schedule::Schedule;
use crate::source::Source;
use crate::voice::Voice;
use crate::{Command, Happening, SECOND_NS};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use nom_abi::priced::Announcement;
use nom_abi::prices::{PriceList, PriceSource};
use nom_proto::prices::Prices;
use nom_proto::status::Status;

/// Least time between two publications that only confirm prices.
const CONFIRM_NS: u64 = SECOND_NS / 2;

/// A connection to the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// The one that brings prices.
    Prices,
    /// The one for reports.
    Reports,
}

impl Link {
    /// Both.
    pub const ALL: [Link; 2] = [Link::Prices, Link::Reports];
}

/// Prices to put on the board.
#[derive(Clone, Debug, PartialEq)]
pub struct Publication {
    /// The prices.
    pub list: PriceList,
    /// What to tell every application then; nothing, if prices were only confirmed.
    pub announcement: Option<Announcement>,
}

#[derive(Debug)]
enum Origin {
    Provider { feed: Box<Feed>, reporter: Box<Reporter>, name: String },
    Fixed(Schedule),
}

/// The daemon.
#[derive(Debug)]
pub struct Daemon {
    origin: Origin,
    book: Book,
    voice: Voice,
    publication: Option<Publication>,
    confirmed_ns: u64,
}

impl Daemon {
    /// Prices from `source`, where the machine has this key. `seed` decides what is left to chance.
    pub fn new(source: Source, key: Option<&str>, seed: u64) -> Daemon {
        let (origin, from) = match source {
            Source::Provider(address) => {
                let name = address.to_string();
                let feed = Box::new(Feed::new(&name, seed));
                let reporter = Box::new(Reporter::new(&name, key, !seed));
                (Origin::Provider { feed, reporter, name }, PriceSource::Provider)
            }
            Source::Fixed(schedule) => (Origin::Fixed(schedule), PriceSource::Fixed),
        };
        Daemon { origin, book: Book::new(from), voice: Voice::new(), publication: None, confirmed_ns: 0 }
    }

    /// Time has passed.
    pub fn tick(&mut self, now_ns: u64) {
        self.voice.tick(now_ns);
        match &mut self.origin {
            Origin::Provider { feed, reporter, .. } => {
                feed.tick(now_ns);
                reporter.tick(now_ns);
            }
            Origin::Fixed(schedule) => {
                if let Some(prices) = schedule.tick(now_ns) {
                    self.take(now_ns, &prices);
                }
            }
        }
        self.hear(now_ns);
    }

    /// Something happened on a connection.
    pub fn happened(&mut self, now_ns: u64, link: Link, happening: Happening<'_>) {
        if let Origin::Provider { feed, reporter, .. } = &mut self.origin {
            match link {
                Link::Prices => feed.happened(now_ns, happening),
                Link::Reports => reporter.happened(now_ns, happening),
            }
        }
        self.hear(now_ns);
    }

    /// An application reports. Without a provider nobody hears it.
    pub fn report(&mut self, status: Status) {
        if let Origin::Provider { reporter, .. } = &mut self.origin {
            reporter.put(status);
        }
    }

    /// Says a line.
    pub fn say(&mut self, now_ns: u64, line: &str) {
        self.voice.say(now_ns, line);
    }

    /// What is to be done next on a connection.
    pub fn command(&mut self) -> Option<(Link, Command)> {
        let Origin::Provider { feed, reporter, .. } = &mut self.origin else { return None };
        let prices = feed.command().map(|command| (Link::Prices, command));
        prices.or_else(|| Some((Link::Reports, reporter.command()?)))
    }

    /// Prices to publish.
    pub fn publication(&mut self) -> Option<Publication> {
        self.publication.take()
    }

    /// Whether there are prices to publish.
    pub fn has_publication(&self) -> bool {
        self.publication.is_some()
    }

    /// The next line for people.
    pub fn line(&mut self) -> Option<String> {
        self.voice.take()
    }

    /// When [`Daemon::tick`] has something to do.
    pub fn due_ns(&self) -> Option<u64> {
        let due_ns = match &self.origin {
            Origin::Provider { feed, reporter, .. } => {
                Some(feed.due_ns()).into_iter().chain(reporter.due_ns()).min()
            }
            Origin::Fixed(schedule) => schedule.due_ns(),
        };
        due_ns.into_iter().chain(self.voice.due_ns()).min()
    }

    fn hear(&mut self, now_ns: u64) {
        while let Origin::Provider { feed, .. } = &mut self.origin
            && let Some(news) = feed.news()
        {
            match news {
                News::Prices(prices) => self.take(now_ns, &prices),
                News::Alive => self.confirm(now_ns),
                News::State(state) => self.tell(now_ns, &state),
            }
        }
        if let Origin::Provider { reporter, name, .. } = &mut self.origin
            && let Some(news) = reporter.news()
        {
            let line = match news {
                Some(trouble) => format!("{name}: {trouble}; reports are lost, trying again"),
                None => format!("{name}: takes reports again"),
            };
            self.voice.say(now_ns, &line);
        }
    }

    fn take(&mut self, now_ns: u64, prices: &Prices) {
        let (differs, refused) = self.book.take(prices, now_ns);
        for disbelief in refused {
            let from = match &self.origin {
                Origin::Provider { name, .. } => format!("{name} ({})", prices.source),
                Origin::Fixed(_) => prices.source.clone(),
            };
            self.voice.say(now_ns, &format!("{from}: {disbelief}"));
        }
        if !differs {
            return self.confirm(now_ns);
        }
        self.publish(now_ns);
    }

    /// Has other prices posted, and announced.
    fn publish(&mut self, now_ns: u64) {
        let list = *self.book.list();
        let announcement = Announcement {
            kind: Announcement::KIND,
            revision: list.revision,
            published_ns: list.published_ns,
        };
        self.confirmed_ns = now_ns;
        self.publication = Some(Publication { list, announcement: Some(announcement) });
    }

    /// The prices hold; says so on the board, but not too often.
    fn confirm(&mut self, now_ns: u64) {
        if self.book.confirm(now_ns) {
            return self.publish(now_ns);
        }
        if now_ns.saturating_sub(self.confirmed_ns) >= CONFIRM_NS {
            self.confirmed_ns = now_ns;
            let list = *self.book.list();
            // What is to be announced stays so.
            let announcement = self.publication.take().and_then(|publication| publication.announcement);
            self.publication = Some(Publication { list, announcement });
        }
    }

    fn tell(&mut self, now_ns: u64, state: &State) {
        let Origin::Provider { name, .. } = &self.origin else { return };
        let line = match state {
            State::Unknown => return,
            State::Following => format!("{name}: its prices come by events"),
            State::Polling => format!("{name}: it has no events, so it is asked for its prices now and then"),
            State::Trouble(trouble) => {
                let ages = self.book.list().iter().map(|entry| entry.age_ns(now_ns) / SECOND_NS);
                match ages.max() {
                    Some(age) => {
                        format!("{name}: {trouble}; the last prices stay ({age} s old), trying again")
                    }
                    None => format!("{name}: {trouble}; there are no prices yet, trying again"),
                }
            }
        };
        self.voice.say(now_ns, &line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Loss;
    use proptest::prelude::*;

    const EVENTS: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";

    /// Something that a provider may do.
    #[derive(Clone, Debug)]
    enum Act {
        Wait(u64),
        Accept,
        Say(Vec<u8>),
        Close(Loss),
    }

    fn prices() -> impl Strategy<Value = String> {
        let dollars = prop_oneof![Just(1.0), Just(10.0), any::<f64>()];
        (any::<u64>(), any::<f64>(), dollars, "core|network_out|energy|gold").prop_map(
            |(revision, age, dollars, name)| {
                format!(
                    "event: prices\ndata: {{\"revision\":{revision},\"source\":\"x\",\"age_seconds\":{age},\
                 \"prices\":[{{\"resource\":\"{name}\",\"dollars\":{dollars},\"since_unix_ns\":0}}]}}\n\n"
                )
            },
        )
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            (0..20 * SECOND_NS).prop_map(Act::Wait),
            Just(Act::Accept),
            Just(Act::Say(EVENTS.into())),
            prices().prop_map(|text| Act::Say(text.into_bytes())),
            prices().prop_map(|text| Act::Say(text.into_bytes())),
            Just(Act::Say(b":\n\n".to_vec())),
            Just(Act::Say(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec())),
            Just(Act::Say(b"HTTP/1.1 404 No\r\n\r\n".to_vec())),
            prop::collection::vec(any::<u8>(), 1..40).prop_map(Act::Say),
            Just(Act::Close(Loss::Finished)),
            Just(Act::Close(Loss::Reset)),
        ]
    }

    proptest! {
        #[test]
        fn whatever_a_provider_does_prices_can_be_and_lines_are_few(
            acts in prop::collection::vec((act(), any::<bool>()), 0..80),
        ) {
            let mut daemon = Daemon::new(Source::Provider(([10, 0, 2, 2], 80).into()), None, 1);
            let (mut now_ns, mut lines) = (0, 0);
            for (act, is_first) in acts {
                let link = Link::ALL[usize::from(!is_first)];
                match act {
                    Act::Wait(time_ns) => now_ns += time_ns,
                    Act::Accept => daemon.happened(now_ns, link, Happening::Connected),
                    Act::Say(bytes) => daemon.happened(now_ns, link, Happening::Received(&bytes)),
                    Act::Close(loss) => daemon.happened(now_ns, link, Happening::Closed(loss)),
                }
                daemon.tick(now_ns);
                while daemon.command().is_some() {}
                lines += core::iter::from_fn(|| daemon.line()).count() as u64;
                if let Some(publication) = daemon.publication() {
                    let is_possible = publication.list.iter().all(|entry| {
                        entry.dollars.is_finite() && entry.dollars > 0.0 && entry.confirmed_ns <= now_ns
                    });
                    prop_assert!(is_possible);
                }
                prop_assert!(daemon.due_ns().is_some_and(|due_ns| due_ns > now_ns), "it would spin");
            }
            prop_assert!(lines <= 10 + now_ns / (5 * SECOND_NS), "{} lines in {} ns", lines, now_ns);
        }
    }

    #[test]
    fn a_schedule_is_published_step_by_step() {
        let source = Source::parse("fixed:core=1,2@1s").expect("a schedule");
        let mut daemon = Daemon::new(source, None, 1);
        daemon.tick(5);
        let first = daemon.publication().expect("the first step");
        assert_eq!(first.announcement.map(|announcement| announcement.revision), Some(1));
        assert_eq!((daemon.due_ns(), daemon.command()), (Some(SECOND_NS + 5), None));
        daemon.tick(SECOND_NS + 5);
        let second = daemon.publication().expect("the second step");
        assert_eq!(second.list.iter().map(|entry| entry.dollars).collect::<Vec<_>>(), [2.0]);
        assert_eq!((daemon.due_ns(), daemon.publication()), (None, None));
    }
}
