//! The REST API.

mod connections;
mod ledger;
mod metrics;
mod prices;
mod problem;
mod status;

use crate::ledger::{Ledger, Tally};
use crate::price_book::PriceBook;
use crate::source::Journal;
use crate::status_book::StatusBook;
use crate::token::Token;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use nom_proto::path;
use problem::Refusal;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// Largest body of a request, in bytes.
const BODY_MAX: usize = 1 << 20;
/// How long a request may take to come in and be answered; events may follow for as long as they like.
const REQUEST_PATIENCE: Duration = Duration::from_secs(10);
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
    pub token: Token,
}

/// Serves at `listener` on a thread of its own until `stopped`.
pub(crate) fn spawn(
    listener: TcpListener,
    shared: Arc<Shared>,
    stopped: oneshot::Receiver<()>,
) -> std::io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = {
        let _context = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    std::thread::Builder::new().name("provider".to_owned()).spawn(move || {
        runtime.block_on(connections::serve(listener, router(shared), stopped));
        runtime.shutdown_background();
    })
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
        .route(path::METRICS, get(metrics::metrics))
        .fallback(nothing_here)
        .method_not_allowed_fallback(wrong_method)
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
