//! `/v1/ledger`.

use super::Shared;
use super::problem::{Body, Operator, Parameters, Refusal};
use crate::ledger::{Bill, Filter, LedgerError, page, summary};
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use nom_proto::ledger::{Entered, NewRecords, Page, Summary};
use std::sync::Arc;

pub async fn enter(
    _operator: Operator,
    State(shared): State<Arc<Shared>>,
    Body(new): Body<NewRecords>,
) -> Result<Json<Entered>, Refusal> {
    Ok(Json(shared.ledger.enter(new.records).await?))
}

pub async fn records(
    State(shared): State<Arc<Shared>>,
    Parameters(filter): Parameters<Filter>,
) -> Result<Json<Page>, Refusal> {
    Ok(Json(shared.ledger.ask(move |connection| page(connection, &filter)).await?))
}

pub async fn sums(
    State(shared): State<Arc<Shared>>,
    Parameters(filter): Parameters<Filter>,
) -> Result<Json<Summary>, Refusal> {
    Ok(Json(shared.ledger.ask(move |connection| summary(connection, &filter)).await?))
}

pub async fn focus(
    State(shared): State<Arc<Shared>>,
    Parameters(filter): Parameters<Filter>,
) -> Result<impl IntoResponse, Refusal> {
    let bill = shared.ledger.ask(move |connection| Bill::of(connection, &filter)).await?;
    let csv = bill.to_csv().map_err(|error| {
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, format!("the bill cannot be written: {error:#}"))
    })?;
    Ok(([(header::CONTENT_TYPE, "text/csv; charset=utf-8; header=present")], csv))
}

impl From<LedgerError> for Refusal {
    fn from(error: LedgerError) -> Refusal {
        let status = match &error {
            LedgerError::Bad(bad) if bad.contradicts => StatusCode::CONFLICT,
            LedgerError::Bad(_) => StatusCode::UNPROCESSABLE_ENTITY,
            LedgerError::Database(_) | LedgerError::Closed => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let refusal = Refusal::new(status, error.to_string());
        match error {
            LedgerError::Bad(bad) => {
                refusal.about(format!("records[{}].{}", bad.index, bad.field), bad.expected)
            }
            LedgerError::Database(_) | LedgerError::Closed => refusal,
        }
    }
}
