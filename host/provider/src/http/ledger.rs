//! `/v1/ledger`.

use super::Shared;
use super::access::Caller;
use super::problem::{Body, Parameters, Refusal};
use crate::ledger::{Bill, Filter, LedgerError, page, summary};
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use nom_proto::account::Role;
use nom_proto::ledger::{Entered, NewRecords, Page, Summary};
use std::sync::Arc;

pub async fn enter(
    caller: Caller,
    State(shared): State<Arc<Shared>>,
    Body(new): Body<NewRecords>,
) -> Result<Json<Entered>, Refusal> {
    let is_operator = caller.operates().is_ok();
    if !is_operator && caller.0.role != Role::Meter {
        return Err(caller.operates().err().unwrap_or_else(|| Refusal::unauthorized("this needs a key")));
    }
    let mut charged = Vec::with_capacity(new.records.len());
    for (index, record) in new.records.into_iter().enumerate() {
        caller.speaks(Role::Meter, &record.machine)?;
        if !is_operator && !record.id.starts_with(&format!("{}/", record.machine)) {
            let detail = format!("{:?} could be another machine's", record.id);
            let expected = format!("an id that begins with `{}/`", record.machine);
            return Err(Refusal::field(format!("records[{index}].id"), detail, expected));
        }
        let tenant = shared.accounts.tenant_of(&record.machine).map_err(Refusal::broken)?;
        charged.push((record, tenant));
    }
    Ok(Json(shared.ledger.enter(charged).await?))
}

/// The records that he may read and asks for.
fn permitted(caller: &Caller, mut filter: Filter) -> Result<Filter, Refusal> {
    if let Some(own) = caller.bills()? {
        if filter.tenant.as_ref().is_some_and(|asked| asked != own) {
            let detail = format!("tenant `{own}` may not read another's bills");
            return Err(Refusal::new(StatusCode::FORBIDDEN, detail).about("tenant", own));
        }
        filter.tenant = Some(own.to_owned());
    }
    Ok(filter)
}

pub async fn records(
    caller: Caller,
    State(shared): State<Arc<Shared>>,
    Parameters(filter): Parameters<Filter>,
) -> Result<Json<Page>, Refusal> {
    let filter = permitted(&caller, filter)?;
    Ok(Json(shared.ledger.ask(move |connection| page(connection, &filter)).await?))
}

pub async fn sums(
    caller: Caller,
    State(shared): State<Arc<Shared>>,
    Parameters(filter): Parameters<Filter>,
) -> Result<Json<Summary>, Refusal> {
    let filter = permitted(&caller, filter)?;
    Ok(Json(shared.ledger.ask(move |connection| summary(connection, &filter)).await?))
}

pub async fn focus(
    caller: Caller,
    State(shared): State<Arc<Shared>>,
    Parameters(filter): Parameters<Filter>,
) -> Result<impl IntoResponse, Refusal> {
    let filter = permitted(&caller, filter)?;
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
