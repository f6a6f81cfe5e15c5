//! The description of the REST API (OpenAPI 3.1), from the types that it speaks.
#![allow(dead_code, reason = "functions without a body that carry descriptions of paths")]

use axum::Json;
use nom_proto::account::{MachineKeys, NewMachine};
use nom_proto::ledger::{Entered, NewRecords, Page, Summary};
use nom_proto::meter::MeterReport;
use nom_proto::prices::{NewPrices, Prices, Source};
use nom_proto::problem::Problem;
use nom_proto::status::{Reported, Status};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{Modify, OpenApi};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "nom provider",
        description = "Prices, the ledger of what was used and owed, and what machines report. Whatever is \
                       refused answers a problem (RFC 9457).",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    ),
    modifiers(&Keys),
    components(schemas(Problem)),
    paths(
        prices, set_prices, price_events, sources, statuses, report, status_events, records, enter, summary,
        focus, register, give_up, meters, meter_report, metrics, openapi
    )
)]
struct Description;

/// How a key is shown.
struct Keys;

impl Modify for Keys {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let components = openapi.components.get_or_insert_default();
        components.add_security_scheme("key", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    }
}

/// What `/v1/openapi.json` answers.
pub async fn describe() -> Json<utoipa::openapi::OpenApi> {
    Json(Description::openapi())
}

/// Present prices.
#[utoipa::path(get, path = "/v1/prices", responses((status = 200, body = Prices)))]
fn prices() {}

/// Sets prices, all or none; others stay. For operators.
#[utoipa::path(put, path = "/v1/prices", request_body = NewPrices, security(("key" = [])),
    responses((status = 200, body = Prices), (status = 422, body = Problem)))]
fn set_prices() {}

/// Server-sent events: `prices` now and at each change, a comment every second otherwise.
#[utoipa::path(get, path = "/v1/prices/events",
    responses((status = 200, body = Prices, content_type = "text/event-stream")))]
fn price_events() {}

/// How each source of prices fares.
#[utoipa::path(get, path = "/v1/sources", responses((status = 200, body = Vec<Source>)))]
fn sources() {}

/// The last status of each application that the caller may see.
#[utoipa::path(get, path = "/v1/status", security(("key" = [])),
    responses((status = 200, body = Vec<Reported>)))]
fn statuses() {}

/// Takes a status. For the machine that it is of.
#[utoipa::path(post, path = "/v1/status", request_body = Status, security(("key" = [])),
    responses((status = 204), (status = 403, body = Problem), (status = 507, body = Problem)))]
fn report() {}

/// Server-sent events: `status`, each as it comes.
#[utoipa::path(get, path = "/v1/status/events", security(("key" = [])),
    responses((status = 200, body = Reported, content_type = "text/event-stream")))]
fn status_events() {}

/// Records that the caller may see. For operators, auditors and tenants.
#[utoipa::path(get, path = "/v1/ledger/records", security(("key" = [])),
    params(
        ("tenant" = Option<String>, Query), ("machine" = Option<String>, Query),
        ("activity" = Option<String>, Query), ("resource" = Option<String>, Query),
        ("from" = Option<u64>, Query, description = "that begin then or later, in nanoseconds since 1970"),
        ("to" = Option<u64>, Query, description = "that begin before"),
        ("after" = Option<u64>, Query, description = "behind this sequence"),
        ("limit" = Option<u32>, Query, description = "at most 10,000; 1,000 if nobody says")
    ),
    responses((status = 200, body = Page)))]
fn records() {}

/// Enters records, all or none. For the meter of their machine.
#[utoipa::path(post, path = "/v1/ledger/records", request_body = NewRecords, security(("key" = [])),
    responses((status = 200, body = Entered), (status = 409, body = Problem),
        (status = 422, body = Problem)))]
fn enter() {}

/// Sums by tenant, machine, activity and resource, with the same filters.
#[utoipa::path(get, path = "/v1/ledger/summary", security(("key" = [])),
    params(("tenant" = Option<String>, Query), ("machine" = Option<String>, Query)),
    responses((status = 200, body = Summary)))]
fn summary() {}

/// The bill in the columns of FOCUS 1.2.
#[utoipa::path(get, path = "/v1/ledger/focus.csv", security(("key" = [])),
    params(("tenant" = Option<String>, Query), ("machine" = Option<String>, Query)),
    responses((status = 200, body = String, content_type = "text/csv")))]
fn focus() {}

/// Registers a machine, and makes its keys. For operators.
#[utoipa::path(post, path = "/v1/machines", request_body = NewMachine, security(("key" = [])),
    responses((status = 201, body = MachineKeys), (status = 409, body = Problem)))]
fn register() {}

/// Ends a machine's keys. For operators.
#[utoipa::path(delete, path = "/v1/machines/{name}", params(("name" = String, Path)), security(("key" = [])),
    responses((status = 204), (status = 404, body = Problem)))]
fn give_up() {}

/// What meters see of the machines that the caller may see.
#[utoipa::path(get, path = "/v1/meters", security(("key" = [])),
    responses((status = 200, body = Vec<MeterReport>)))]
fn meters() {}

/// Takes what a meter sees. For the meter of that machine.
#[utoipa::path(post, path = "/v1/meters", request_body = MeterReport, security(("key" = [])),
    responses((status = 204), (status = 403, body = Problem)))]
fn meter_report() {}

/// Everything for Prometheus (OpenMetrics text). For operators, auditors and tenants.
#[utoipa::path(get, path = "/metrics", security(("key" = [])),
    responses((status = 200, body = String, content_type = "application/openmetrics-text")))]
fn metrics() {}

/// This description.
#[utoipa::path(get, path = "/v1/openapi.json", responses((status = 200, body = Object)))]
fn openapi() {}
