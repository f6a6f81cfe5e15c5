//! The REST API.

mod access;
mod connections;
mod hosts;
mod impatient;
mod ledger;
mod machines;
mod meters;
mod metrics;
mod openapi;
mod places;
mod prices;
mod problem;
mod rates;
mod status;

pub(crate) use hosts::Hosts;
pub(crate) use meters::Meters;
pub(crate) use rates::Rates;

use crate::accounts::Accounts;
use crate::clock::Moment;
use crate::ledger::{Ledger, Tally};
use crate::price_book::PriceBook;
use crate::source::Journal;
use crate::status_book::StatusBook;
use crate::token::OperatorToken;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use nom_proto::path;
use places::{CONNECTIONS_MAX, Places};
use problem::Refusal;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// Largest body of a request, in bytes.
pub(crate) const BODY_MAX: usize = 1 << 20;
/// How long a request may take to come in and be answered; events may follow for as long as they like.
const REQUEST_PATIENCE: Duration = Duration::from_secs(10);
/// From one step of a price to the next.
const PACE_STEP: Duration = Duration::from_secs(1);
/// The web page for people.
const PAGE: &str = include_str!("../../web/index.html");

/// What all requests see.
#[derive(Debug)]
pub(crate) struct Shared {
    pub prices: PriceBook,
    pub statuses: StatusBook,
    pub ledger: Ledger,
    pub tally: Arc<Mutex<Tally>>,
    pub journal: Journal,
    pub meters: Meters,
    pub accounts: Accounts,
    pub token: OperatorToken,
    pub hosts: Hosts,
    pub rates: Rates,
}

/// Serves at `listener`, by TLS if there is a certificate, on a thread of its own until `stopped`.
pub(crate) fn spawn(
    listener: TcpListener,
    tls: Option<Arc<rustls::ServerConfig>>,
    shared: Arc<Shared>,
    stopped: oneshot::Receiver<()>,
) -> std::io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = {
        let _context = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    std::thread::Builder::new().name("provider".to_owned()).spawn(move || {
        if shared.prices.is_paced() {
            drop(runtime.spawn(keep_pace(shared.clone())));
        }
        let places = Places::new(CONNECTIONS_MAX);
        runtime.block_on(connections::serve(listener, tls.map(Into::into), router(shared), places, stopped));
        runtime.shutdown_background();
    })
}

/// Lets prices go on, a step a second, toward what their sources want.
async fn keep_pace(shared: Arc<Shared>) {
    let mut step = tokio::time::interval(PACE_STEP);
    loop {
        step.tick().await;
        shared.prices.approach(Moment::now());
    }
}

fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/", get(page))
        .route(path::PRICES, get(prices::present).put(prices::set))
        .route(path::PRICE_EVENTS, get(prices::events))
        .route(path::SOURCES, get(prices::sources))
        .route(path::STATUS, get(status::all).post(status::report))
        .route(path::STATUS_EVENTS, get(status::events))
        .route(path::LEDGER_RECORDS, get(ledger::records).post(ledger::enter))
        .route(path::LEDGER_SUMMARY, get(ledger::sums))
        .route(path::LEDGER_FOCUS, get(ledger::focus))
        .route(path::MACHINES, post(machines::register))
        .route(&format!("{}/{{name}}", path::MACHINES), delete(machines::give_up))
        .route(path::METERS, get(meters::all).post(meters::report))
        .route(path::OPENAPI, get(openapi::describe))
        .route(path::METRICS, get(metrics::metrics))
        .fallback(nothing_here)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(shared.clone(), access::guard))
        .layer(middleware::from_fn(within_patience))
        .layer(middleware::from_fn(within_size))
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .with_state(shared)
}

async fn page() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], PAGE)
}

async fn nothing_here(uri: Uri) -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, format!("there is nothing at {}", uri.path()))
}

async fn wrong_method(method: Method, uri: Uri) -> Refusal {
    let detail = format!("{} does not take {method}", uri.path());
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, detail)
}

/// Who announces too much hears so before he sends it.
async fn within_size(request: Request, next: Next) -> Response {
    let length = request.headers().get(header::CONTENT_LENGTH);
    let announced = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_none_or(|bytes| bytes <= BODY_MAX as u64) {
        return next.run(request).await;
    }
    let detail = format!("a body of more than {BODY_MAX} bytes");
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, detail).into_response()
}

/// A request that dribbles in must not be waited for without end.
async fn within_patience(request: Request, next: Next) -> Response {
    tokio::time::timeout(REQUEST_PATIENCE, next.run(request)).await.unwrap_or_else(|_| {
        let detail = format!("the request took longer than {} s", REQUEST_PATIENCE.as_secs());
        Refusal::new(StatusCode::REQUEST_TIMEOUT, detail).into_response()
    })
}
