//! Addresses of names.

use crate::network::Network;
use crate::sockets::Sockets;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::future::poll_fn;
use core::net::IpAddr;
use core::task::{Poll, Waker};
use nom_net::{Family, Observed, QueryId, ResolveError};

/// What a question came to.
pub(crate) type Answer = Result<Vec<IpAddr>, ResolveError>;

/// A question that somebody waits for.
#[derive(Debug)]
enum Question {
    Asked(Option<Waker>),
    Answered(Answer),
}

/// The questions of a core that are open, or answered and not yet taken.
#[derive(Debug, Default)]
pub(crate) struct Questions(BTreeMap<QueryId, Question>);

impl Questions {
    /// Notes an answer. Returns who waits for it.
    pub fn answer(&mut self, query: QueryId, answer: Answer) -> Option<Waker> {
        // Somebody may have lost interest.
        let question = self.0.get_mut(&query)?;
        match core::mem::replace(question, Question::Answered(answer)) {
            Question::Asked(waker) => waker,
            Question::Answered(_) => None,
        }
    }

    fn poll(&mut self, query: QueryId, waker: &Waker) -> Poll<Answer> {
        match self.0.remove(&query) {
            Some(Question::Answered(answer)) => Poll::Ready(answer),
            _ => {
                self.0.insert(query, Question::Asked(Some(waker.clone())));
                Poll::Pending
            }
        }
    }
}

/// A question that is forgotten when this is dropped.
struct Asked<'n, N: Observed + 'static> {
    network: &'n Network<N>,
    query: QueryId,
}

impl<N: Observed> Drop for Asked<'_, N> {
    fn drop(&mut self) {
        self.network.with(|sockets| sockets.table.questions.0.remove(&self.query));
    }
}

impl<N: Observed + 'static> Network<N> {
    /// Asks for the addresses of `name` of one family, and waits for them; there may be none.
    ///
    /// # Errors
    /// Why they are not known.
    pub async fn resolve(&self, name: &str, family: Family) -> Result<Vec<IpAddr>, ResolveError> {
        let ask = |sockets: &mut Sockets<N>| {
            let query = sockets.stack.resolve(name, family)?;
            sockets.table.questions.0.insert(query, Question::Asked(None));
            Ok(query)
        };
        let asked = Asked { network: self, query: self.with(ask)? };
        poll_fn(|context| self.with(|sockets| sockets.table.questions.poll(asked.query, context.waker())))
            .await
    }
}
