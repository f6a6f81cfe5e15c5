//! `/v1/meters`: what meters see of machines beside what they charge.

use super::Shared;
use super::access::Caller;
use super::problem::{Body, Refusal};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use nom_proto::account::Role;
use nom_proto::meter::MeterReport;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The last report of each machine's meter.
#[derive(Debug, Default)]
pub struct Meters(Mutex<BTreeMap<String, MeterReport>>);

impl Meters {
    /// All, by machine.
    pub fn all(&self) -> Vec<MeterReport> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, MeterReport>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub async fn report(
    caller: Caller,
    State(shared): State<Arc<Shared>>,
    Body(report): Body<MeterReport>,
) -> Result<StatusCode, Refusal> {
    caller.speaks(Role::Meter, &report.machine)?;
    shared.meters.lock().insert(report.machine.clone(), report);
    Ok(StatusCode::NO_CONTENT)
}

pub async fn all(caller: Caller, State(shared): State<Arc<Shared>>) -> Json<Vec<MeterReport>> {
    let sight = caller.sight();
    Json(shared.meters.all().into_iter().filter(|report| sight.has(&report.machine, &shared)).collect())
}
