//! `/v1/prices`.

use super::Shared;
use super::access::Operator;
use super::problem::{Body, Refusal};
use crate::clock::Moment;
use crate::price_book::{Follower, Standing, Taking};
use axum::Json;
use axum::extract::State;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use futures_util::{Stream, stream};
use nom_proto::prices::{NewPrices, Prices, Resource, Source};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// Whoever hears nothing for longer than this has lost the provider.
const HEARTBEAT: Duration = Duration::from_secs(1);

pub async fn present(State(shared): State<Arc<Shared>>) -> Json<Prices> {
    Json(shared.prices.prices(Moment::now()))
}

pub async fn sources(State(shared): State<Arc<Shared>>) -> Json<Vec<Source>> {
    Json(shared.journal.sources(Moment::now()))
}

pub async fn set(
    _operator: Operator,
    State(shared): State<Arc<Shared>>,
    Body(new): Body<NewPrices>,
) -> Result<Json<Prices>, Refusal> {
    let mut seen = BTreeSet::new();
    if let Some(index) = new.prices.iter().position(|price| !seen.insert(price.resource)) {
        let resource = new.prices[index].resource.name();
        let detail = format!("{resource} has a price already");
        return Err(Refusal::field(
            format!("prices[{index}].resource"),
            detail,
            "each resource once at most",
        ));
    }
    let offers: Vec<(Resource, f64)> =
        new.prices.iter().map(|price| (price.resource, price.dollars)).collect();
    let now = Moment::now();
    let (_, refused) = shared.prices.offer(&offers, Standing::Lasting, Taking::AllOrNone, now);
    match refused.first() {
        None => Ok(Json(shared.prices.prices(now))),
        Some(refused) => {
            let field = format!("prices[{}].dollars", refused.index);
            Err(Refusal::field(field, refused.to_string(), refused.refusal.absurdity.to_string()))
        }
    }
}

pub async fn events(State(shared): State<Arc<Shared>>) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let follower = shared.prices.follow();
    let events = stream::unfold((shared, follower, true), next_event);
    Sse::new(events).keep_alive(heartbeat())
}

/// The present prices at `first`, then each change.
async fn next_event(
    (shared, mut follower, first): (Arc<Shared>, Follower, bool),
) -> Option<(Result<Event, Infallible>, (Arc<Shared>, Follower, bool))> {
    if !first && !follower.changed().await {
        return None;
    }
    let prices = shared.prices.heard(&mut follower, Moment::now());
    let event = Event::default().event("prices").id(prices.revision.to_string());
    let event = event.json_data(&prices).expect("prices are finite numbers");
    Some((Ok(event), (shared, follower, false)))
}

/// A comment for whenever there is nothing else to say.
pub fn heartbeat() -> KeepAlive {
    KeepAlive::new().interval(HEARTBEAT).text("")
}
