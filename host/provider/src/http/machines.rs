//! `/v1/machines`: registering machines, and giving them up.

use super::Shared;
use super::access::Operator;
use super::problem::{Body, Refusal};
use crate::accounts::CannotRegister;
use crate::clock::Moment;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use nom_proto::account::{MachineKeys, NewMachine, Role};
use std::sync::Arc;

pub async fn register(
    _operator: Operator,
    State(shared): State<Arc<Shared>>,
    Body(new): Body<NewMachine>,
) -> Result<(StatusCode, Json<MachineKeys>), Refusal> {
    let keys = shared.accounts.register(&new, Moment::now().unix_ns).map_err(|error| match error
        .downcast_ref::<CannotRegister>(
    ) {
        Some(CannotRegister::Full) => Refusal::new(StatusCode::INSUFFICIENT_STORAGE, error.to_string()),
        Some(CannotRegister::Taken { .. }) => Refusal::new(StatusCode::CONFLICT, error.to_string())
            .about("name", "a machine that its holder has given up, or another name"),
        None => Refusal::field("name", format!("{error:#}"), "a name"),
    })?;
    Ok((StatusCode::CREATED, Json(keys)))
}

pub async fn give_up(
    _operator: Operator,
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
) -> Result<StatusCode, Refusal> {
    let roles = [Role::Machine, Role::Meter];
    let ended = shared.accounts.revoke(&roles, &name, Moment::now().unix_ns).map_err(Refusal::broken)?;
    if ended == 0 {
        let detail = format!("no machine `{name}` has a key");
        return Err(Refusal::new(StatusCode::NOT_FOUND, detail));
    }
    Ok(StatusCode::NO_CONTENT)
}
