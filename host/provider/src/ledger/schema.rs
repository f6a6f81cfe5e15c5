//! The ledger's file: its tables, how older ones become present ones, and copies of it.

use anyhow::{Context, Result, ensure};
use rusqlite::Connection;
use rusqlite::backup::Backup;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Marks a file as a ledger ("nomL").
const APPLICATION_ID: i32 = 0x6e6f_6d4c;
/// How long another process may hold the file before that is an error.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
/// Pages that are copied at a time, and the pause after them in which others may write.
const COPY_PAGES: i32 = 1024;
const COPY_PAUSE: Duration = Duration::from_millis(1);

/// What makes each version of the tables out of the one before; the last is the present one.
const STEPS: [&str; 2] = [RECORDS, ACCOUNTS];

/// Tables, and triggers without which they could be changed. A row could also be replaced by inserting it
/// anew, for which SQLite asks no trigger of deletion.
const RECORDS: &str = "
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

/// Who may do what. Who paid for a machine is written into each record, since a name may become another's.
const ACCOUNTS: &str = "
ALTER TABLE record ADD COLUMN tenant TEXT;
CREATE INDEX record_by_tenant ON record (tenant, from_unix_ns);
CREATE TABLE machine (
    name               TEXT PRIMARY KEY,
    tenant             TEXT,
    holder             TEXT NOT NULL,
    registered_unix_ns INTEGER NOT NULL
) STRICT;
CREATE TABLE key (
    id           TEXT PRIMARY KEY,
    role         TEXT NOT NULL,
    name         TEXT NOT NULL,
    hash         BLOB NOT NULL,
    made_unix_ns INTEGER NOT NULL,
    ends_unix_ns INTEGER
) STRICT;
CREATE INDEX key_by_account ON key (name, role);
";

/// Opens the ledger at `path`, or makes it, for its owner alone to read. One of an older version is copied to
/// `PATH.vN` and brought to the present one.
///
/// # Errors
/// If there is something else, or a ledger of a later version.
pub fn open(path: &Path) -> Result<Connection> {
    make_private(path)?;
    let connection = Connection::open(path)?;
    connection.busy_timeout(LOCK_PATIENCE)?;
    if let Some(version) = version(&connection)?.filter(|version| *version < STEPS.len()) {
        let copy = with_suffix(path, &format!(".v{version}"));
        // One that is there is of an upgrade that broke off, or of another process: the file is as it was.
        if !copy.exists() {
            back_up(&connection, &copy)?;
        }
    }
    prepare(connection)
}

/// A ledger that is lost when it is closed.
///
/// # Errors
/// If there is no memory for it.
pub fn in_memory() -> Result<Connection> {
    prepare(Connection::open_in_memory()?)
}

/// Copies a ledger that may be in use to a new file at `path`, which is whole or absent.
///
/// # Errors
/// If there is a file already, or it cannot be written.
pub fn back_up(from: &Connection, path: &Path) -> Result<()> {
    let named = || format!("cannot copy the ledger to {}", path.display());
    ensure!(!path.exists(), "{}: it is there already", named());
    let draft = with_suffix(path, ".new");
    let copy = || -> Result<()> {
        make_private(&draft)?;
        let mut target = Connection::open(&draft)?;
        Backup::new(from, &mut target)?.run_to_completion(COPY_PAGES, COPY_PAUSE, None)?;
        let verdict: String = target.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
        ensure!(verdict == "ok", "the copy is damaged: {verdict}");
        // A copy is one file, not a file and its log.
        target.pragma_update(None, "journal_mode", "DELETE")?;
        target.close().map_err(|(_, error)| error)?;
        std::fs::File::open(&draft)?.sync_all()?;
        Ok(std::fs::rename(&draft, path)?)
    };
    copy().inspect_err(|_| drop(std::fs::remove_file(&draft))).with_context(named)
}

/// Opens the ledger at `path`, of whatever version, to copy it.
///
/// # Errors
/// If there is none.
pub fn open_to_read(path: &Path) -> Result<Connection> {
    ensure!(path.exists(), "{}: there is no ledger", path.display());
    let connection = Connection::open(path)?;
    connection.busy_timeout(LOCK_PATIENCE)?;
    ensure!(version(&connection)?.is_some(), "{}: it is empty", path.display());
    Ok(connection)
}

/// Makes an absent file, so that nobody else can read it from the first byte on: hashes of keys are in it.
fn make_private(path: &Path) -> Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match made {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error.into()),
        _ => Ok(()),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The version of a ledger's tables; none if it has no tables yet.
fn version(connection: &Connection) -> Result<Option<usize>> {
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))?;
    if tables == 0 {
        return Ok(None);
    }
    let (id, version) = (number("application_id")?, number("user_version")?);
    ensure!(id == APPLICATION_ID, "this database is something else, not a ledger");
    let known = usize::try_from(version).ok().filter(|version| (1..=STEPS.len()).contains(version));
    ensure!(known.is_some(), "its version is {version}, expected 1 to {}: a later nom made it", STEPS.len());
    Ok(known)
}

fn prepare(mut connection: Connection) -> Result<Connection> {
    connection.busy_timeout(LOCK_PATIENCE)?;
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let version = version(&transaction)?.unwrap_or(0);
    for step in &STEPS[version..] {
        transaction.execute_batch(step)?;
    }
    if version < STEPS.len() {
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", STEPS.len() as i32)?;
    }
    transaction.commit()?;
    // What is acknowledged is on the disk: the log is flushed with every transaction.
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ledger as the first version made it, with a record.
    fn first_version(path: &Path) {
        let connection = Connection::open(path).expect("made");
        connection.execute_batch(RECORDS).expect("tables");
        connection.pragma_update(None, "application_id", APPLICATION_ID).expect("marked");
        connection.pragma_update(None, "user_version", 1).expect("marked");
        let row = "INSERT INTO record VALUES (1, 'a', 'web-1', 'memcached', 'core', 1, 'core-nanosecond', \
                   1.0, 1, 2, 7)";
        connection.execute(row, []).expect("entered");
    }

    fn owed(connection: &Connection) -> i64 {
        connection.query_row("SELECT sum(cost_nanos) FROM record", [], |row| row.get(0)).expect("a sum")
    }

    #[test]
    fn an_older_ledger_is_copied_and_upgraded_with_all_its_records() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("ledger.db");
        first_version(&path);
        for _ in 0..2 {
            let connection = open(&path).expect("upgraded");
            assert_eq!((owed(&connection), version(&connection).expect("known")), (7, Some(2)));
            let error = connection.execute("DELETE FROM record", []).expect_err("as before").to_string();
            assert!(error.contains("only grows"), "{error}");
        }
        let copy = Connection::open(directory.path().join("ledger.db.v1")).expect("the copy");
        assert_eq!((owed(&copy), version(&copy).expect("known")), (7, Some(1)));
    }

    #[test]
    fn a_later_ledger_is_left_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("ledger.db");
        open(&path).expect("made").pragma_update(None, "user_version", 3).expect("marked");
        let error = open(&path).expect_err("refused").to_string();
        assert!(error.contains("version is 3") && error.contains("a later nom"), "{error}");
    }

    #[test]
    fn a_copy_of_a_ledger_in_use_is_whole_and_replaces_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, copy) = (directory.path().join("ledger.db"), directory.path().join("copy.db"));
        first_version(&path);
        let in_use = open(&path).expect("opened");
        back_up(&open_to_read(&path).expect("opened"), &copy).expect("copied");
        assert_eq!(owed(&open(&copy).expect("a ledger")), owed(&in_use));
        let error = format!("{:#}", back_up(&in_use, &copy).expect_err("there is one"));
        assert!(error.contains("copy.db") && error.contains("there already"), "{error}");
        let nowhere = directory.path().join("no/such/file");
        assert!(back_up(&in_use, &nowhere).is_err());
        assert!(open_to_read(&nowhere).is_err());
        use std::os::unix::fs::PermissionsExt;
        let mode = copy.metadata().expect("it exists").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
