//! The ledger's file.

use anyhow::{Result, ensure};
use rusqlite::Connection;
use std::path::Path;
use std::time::Duration;

/// Marks a file as a ledger ("nomL").
const APPLICATION_ID: i32 = 0x6e6f_6d4c;
/// Version of the tables below.
const VERSION: i32 = 1;
/// How long another process may hold the file before that is an error.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// Tables, and triggers without which they could be changed. A row could also be replaced by inserting it
/// anew, for which SQLite asks no trigger of deletion.
const TABLES: &str = "
CREATE TABLE record (
    sequence     INTEGER PRIMARY KEY,
    id           TEXT NOT NULL UNIQUE,
    machine      TEXT NOT NULL,
    activity     TEXT NOT NULL,
    resource     TEXT NOT NULL,
    quantity     INTEGER NOT NULL CHECK (quantity >= 0),
    unit         TEXT NOT NULL,
    unit_price   REAL NOT NULL CHECK (unit_price >= 0),
    from_unix_ns INTEGER NOT NULL,
    to_unix_ns   INTEGER NOT NULL CHECK (to_unix_ns > from_unix_ns),
    cost_nanos   INTEGER NOT NULL
) STRICT;
CREATE INDEX record_by_machine ON record (machine, from_unix_ns);
CREATE TRIGGER record_is_not_changed BEFORE UPDATE ON record
    BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;
CREATE TRIGGER record_is_not_removed BEFORE DELETE ON record
    BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;
CREATE TRIGGER record_is_not_replaced BEFORE INSERT ON record
    WHEN EXISTS (SELECT 1 FROM record WHERE id = NEW.id OR sequence = NEW.sequence)
    BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;
";

/// Opens the ledger at `path`, or makes it.
///
/// # Errors
/// If there is something else, or a ledger of another version.
pub fn open(path: &Path) -> Result<Connection> {
    prepare(Connection::open(path)?)
}

/// A ledger that is lost when it is closed.
///
/// # Errors
/// If there is no memory for it.
pub fn in_memory() -> Result<Connection> {
    prepare(Connection::open_in_memory()?)
}

fn prepare(mut connection: Connection) -> Result<Connection> {
    connection.busy_timeout(LOCK_PATIENCE)?;
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let number = |name: &str| transaction.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let (id, version) = (number("application_id")?, number("user_version")?);
    let tables: i64 = transaction.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))?;
    if tables == 0 {
        transaction.execute_batch(TABLES)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", VERSION)?;
    } else {
        ensure!(id == APPLICATION_ID, "this database is something else, not a ledger");
        ensure!(version == VERSION, "its version is {version}, expected {VERSION}");
    }
    transaction.commit()?;
    // What is acknowledged is on the disk: the log is flushed with every transaction.
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    Ok(connection)
}
