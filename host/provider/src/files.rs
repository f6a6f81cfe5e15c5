//! What is done with a ledger's file beside a provider, whether that runs or not.

use crate::ledger::{Bill, Filter, schema, summary};
use anyhow::{Context, Result};
use nom_proto::ledger::Summary;
use rusqlite::Connection;
use std::path::Path;

/// Copies the ledger at `from`, with all accounts, to a new file, which is whole or absent.
///
/// # Errors
/// If there is no ledger, or a file already, or it cannot be written.
pub fn back_up(from: &Path, to: &Path) -> Result<()> {
    schema::back_up(&schema::open_to_read(from)?, to)
}

/// Sums of the ledger at `path`, of everybody or one tenant.
///
/// # Errors
/// If there is no ledger.
pub fn summary_of(path: &Path, tenant: Option<&str>) -> Result<Summary> {
    let (connection, filter) = open(path, tenant)?;
    Ok(summary(&connection, &filter)?)
}

/// The bill in the columns of FOCUS, as CSV.
///
/// # Errors
/// If there is no ledger, or a time in it is in no calendar.
pub fn focus(path: &Path, tenant: Option<&str>) -> Result<Vec<u8>> {
    let (connection, filter) = open(path, tenant)?;
    Bill::of(&connection, &filter)?.to_csv()
}

fn open(path: &Path, tenant: Option<&str>) -> Result<(Connection, Filter)> {
    // Looked at first, since opening would make a new one.
    schema::open_to_read(path)?;
    let connection = schema::open(path).with_context(|| path.display().to_string())?;
    Ok((connection, Filter { tenant: tenant.map(str::to_owned), ..Filter::default() }))
}
