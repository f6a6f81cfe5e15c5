//! `/v1/status`.

use super::Shared;
use super::access::{Caller, Sight};
use super::prices::heartbeat;
use super::problem::{Body, Refusal};
use crate::clock::Moment;
use crate::status_book::{APPLICATIONS_MAX, Full};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Sse;
use axum::response::sse::Event;
use futures_util::{Stream, StreamExt, stream};
use nom_proto::account::Role;
use nom_proto::status::{Reported, Status};
use std::convert::Infallible;
use std::sync::Arc;
use tokio_stream::wrappers::BroadcastStream;

/// Most characters of a machine's or an application's name.
const NAME_MAX: usize = 128;

pub async fn all(caller: Caller, State(shared): State<Arc<Shared>>) -> Json<Vec<Reported>> {
    Json(seen(&shared, &caller.sight(), shared.statuses.reported(Moment::now())))
}

/// Those of statuses that somebody may see.
fn seen(shared: &Shared, sight: &Sight, mut statuses: Vec<Reported>) -> Vec<Reported> {
    statuses.retain(|reported| sight.has(&reported.status.machine, shared));
    statuses
}

pub async fn report(
    caller: Caller,
    State(shared): State<Arc<Shared>>,
    Body(status): Body<Status>,
) -> Result<StatusCode, Refusal> {
    check_name("machine", &status.machine)?;
    check_name("application", &status.application)?;
    caller.speaks(Role::Machine, &status.machine)?;
    shared.statuses.report(status, Moment::now()).map_err(|Full| {
        let detail =
            format!("{APPLICATIONS_MAX} of its applications are known, which is all that a machine has");
        Refusal::new(StatusCode::INSUFFICIENT_STORAGE, detail)
    })?;
    Ok(StatusCode::NO_CONTENT)
}

/// Whether people can read it and stores can keep it.
pub fn check_name(field: &str, name: &str) -> Result<(), Refusal> {
    let length = name.chars().count();
    if (1..=NAME_MAX).contains(&length) && !name.chars().any(char::is_control) {
        return Ok(());
    }
    let expected = format!("1 to {NAME_MAX} characters, none of them a control character");
    Err(Refusal::field(field, format!("{name:?} is no name"), expected))
}

pub async fn events(
    caller: Caller,
    State(shared): State<Arc<Shared>>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>> + use<>> {
    let sight = caller.sight();
    let (present, news) = shared.statuses.follow(Moment::now());
    let present = seen(&shared, &sight, present);
    let news = BroadcastStream::new(news).flat_map(move |news| {
        // Who is too slow for every status is told where all stand instead.
        let all = || shared.statuses.reported(Moment::now());
        let fresh = |status| vec![Reported { status, age_seconds: 0.0 }];
        stream::iter(seen(&shared, &sight, news.map_or_else(|_lagged| all(), fresh)))
    });
    let events = stream::iter(present).chain(news).map(|status| {
        let event = Event::default().event("status");
        Ok(event.json_data(&status).expect("a status came as JSON"))
    });
    Sse::new(events).keep_alive(heartbeat())
}
