//! `/v1/status`.

use super::Shared;
use super::access::{Caller, Sight};
use super::prices::heartbeat;
use super::problem::{Body, Refusal};
use crate::clock::Moment;
use crate::meter::activity_name;
use crate::name;
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
    check_activities(&status)?;
    caller.speaks(Role::Machine, &status.machine)?;
    shared.statuses.report(status, Moment::now()).map_err(|Full| {
        let detail =
            format!("{APPLICATIONS_MAX} of its applications are known, which is all that a machine has");
        Refusal::new(StatusCode::INSUFFICIENT_STORAGE, detail)
    })?;
    Ok(StatusCode::NO_CONTENT)
}

/// Each has records of its own, under its name behind that of its application.
fn check_activities(status: &Status) -> Result<(), Refusal> {
    for (index, activity) in status.activities.iter().enumerate() {
        let field = format!("activities[{index}].name");
        check_name(&field, &activity.name)?;
        let Status { application, .. } = status;
        if !name::is_name(&activity_name(application, &activity.name)) {
            let detail = format!("{:?} is too long behind `{application}/`", activity.name);
            return Err(Refusal::field(field, detail, format!("both together: {}", name::expected())));
        }
    }
    Ok(())
}

fn check_name(field: &str, word: &str) -> Result<(), Refusal> {
    if name::is_name(word) {
        return Ok(());
    }
    Err(Refusal::field(field, format!("{word:?} is no name"), name::expected()))
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
