//! Who may do what: accounts, each of a role and with keys of its own, of which hashes are stored.
//!
//! They are in the file of the ledger, so that a copy of that is whole, and are asked for on a connection of
//! their own: what another process changes there (`nom provider account`) holds from the next request on.

mod key;

pub use key::Key;

use crate::ledger::schema;
use crate::name;
use anyhow::{Context, Result, bail, ensure};
use nom_proto::account::{MachineKeys, NewMachine, Role};
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use subtle::ConstantTimeEq;

/// Machines that may be registered at most.
pub(crate) const MACHINES_MAX: u64 = 100_000;

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// What he may do.
    pub role: Role,
    /// The account's name; of a machine and its meter, the machine's.
    pub name: String,
}

/// A key as it is stored, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its id.
    pub id: String,
    /// Whose it is.
    pub owner: Identity,
    /// When it was made, in nanoseconds since 1970.
    pub made_unix_ns: u64,
    /// When it ends or ended, if it does.
    pub ends_unix_ns: Option<u64>,
}

/// A machine cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotRegister {
    /// Somebody else has registered it.
    #[error("machine `{name}` is registered by {holder}")]
    Taken {
        /// The machine.
        name: String,
        /// Who has it.
        holder: String,
    },
    /// There are too many.
    #[error("{MACHINES_MAX} machines are registered, which is all there is room for")]
    Full,
}

/// All accounts.
#[derive(Debug)]
pub struct Accounts(Mutex<Connection>);

impl Accounts {
    /// Those in the ledger's file at `path`, which is made if it is absent; without a path they last as long
    /// as this.
    ///
    /// # Errors
    /// If the file cannot be opened, or is something else.
    pub fn open(path: Option<&Path>) -> Result<Accounts> {
        let connection = match path {
            Some(path) => schema::open(path).with_context(|| format!("accounts in {}", path.display()))?,
            None => schema::in_memory().context("accounts in memory")?,
        };
        Ok(Accounts(Mutex::new(connection)))
    }

    /// Makes a key for an account, which need not have any yet. Machines and their meters have to be
    /// registered before.
    ///
    /// # Errors
    /// If the name is none, or the machine is not registered.
    pub fn add(&self, role: Role, name: &str, now_unix_ns: u64) -> Result<Key> {
        check_name(name)?;
        let connection = self.lock();
        if matches!(role, Role::Machine | Role::Meter) && !is_registered(&connection, name)? {
            bail!("machine `{name}` is not registered: expected the name of one that is");
        }
        let key = Key::random(role)?;
        insert(&connection, &key, role, name, now_unix_ns)?;
        Ok(key)
    }

    /// Registers a machine, whose keys are made anew; older ones of it end.
    ///
    /// # Errors
    /// If a name is none, or the machine cannot be registered ([`CannotRegister`]).
    pub fn register(&self, new: &NewMachine, now_unix_ns: u64) -> Result<MachineKeys> {
        check_name(&new.name)?;
        // Ids of its records begin with its name and a slash.
        ensure!(!new.name.contains('/'), "{:?} is no machine's name: expected one without `/`", new.name);
        new.tenant.as_deref().map_or(Ok(()), check_name)?;
        let (machine, meter) = (Key::random(Role::Machine)?, Key::random(Role::Meter)?);
        let mut connection = self.lock();
        let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        check_free(&transaction, new, now_unix_ns)?;
        end(&transaction, &[Role::Machine, Role::Meter], &new.name, now_unix_ns)?;
        transaction.execute(
            "INSERT OR REPLACE INTO machine (name, tenant, holder, registered_unix_ns) \
             VALUES (?1, ?2, ?3, ?4)",
            params![new.name, new.tenant, new.holder, now_unix_ns],
        )?;
        insert(&transaction, &machine, Role::Machine, &new.name, now_unix_ns)?;
        insert(&transaction, &meter, Role::Meter, &new.name, now_unix_ns)?;
        transaction.commit()?;
        let [machine_key, meter_key] = [machine, meter].map(|key| key.reveal().to_owned());
        Ok(MachineKeys { name: new.name.clone(), machine_key, meter_key })
    }

    /// Whose key `word` is, if it is one that holds now.
    ///
    /// # Errors
    /// If the database fails.
    pub fn authenticate(&self, word: &str, now_unix_ns: u64) -> rusqlite::Result<Option<Identity>> {
        let Some(key) = Key::parse(word) else { return Ok(None) };
        let connection = self.lock();
        let mut statement = connection.prepare_cached(
            "SELECT hash, role, name FROM key WHERE id = ?1 AND (ends_unix_ns IS NULL OR ends_unix_ns > ?2)",
        )?;
        let read = |row: &Row<'_>| Ok((row.get::<_, Vec<u8>>(0)?, identity(row, 1)?));
        let found = statement.query_row(params![key.id(), now_unix_ns], read).optional()?;
        Ok(found.filter(|(hash, _)| hash.ct_eq(&key.hash()).into()).map(|(_, identity)| identity))
    }

    /// Ends all keys of an account, or the one of that id, at a time that may be to come. Returns how many.
    ///
    /// # Errors
    /// If the database fails.
    pub fn revoke(&self, roles: &[Role], name_or_id: &str, ends_unix_ns: u64) -> rusqlite::Result<usize> {
        end(&self.lock(), roles, name_or_id, ends_unix_ns)
    }

    /// Makes a new key for an account whose others go on until `ends_unix_ns`.
    ///
    /// # Errors
    /// If it has no key that holds.
    pub fn rotate(&self, role: Role, name: &str, now_unix_ns: u64, ends_unix_ns: u64) -> Result<Key> {
        let key = Key::random(role)?;
        let mut connection = self.lock();
        let transaction = connection.transaction()?;
        let ended = end(&transaction, &[role], name, ends_unix_ns.max(now_unix_ns))?;
        ensure!(ended > 0, "{} `{name}` has no key: expected an account that has one", role.name());
        insert(&transaction, &key, role, name, now_unix_ns)?;
        transaction.commit()?;
        Ok(key)
    }

    /// Who pays for a machine: the machine may be unknown, or nobody's.
    ///
    /// # Errors
    /// If the database fails.
    pub fn tenant_of(&self, machine: &str) -> rusqlite::Result<Option<String>> {
        let connection = self.lock();
        let mut statement = connection.prepare_cached("SELECT tenant FROM machine WHERE name = ?1")?;
        Ok(statement.query_row([machine], |row| row.get(0)).optional()?.flatten())
    }

    /// All keys, the oldest first.
    ///
    /// # Errors
    /// If the database fails.
    pub fn list(&self) -> rusqlite::Result<Vec<Stored>> {
        let connection = self.lock();
        let mut statement = connection.prepare(
            "SELECT id, made_unix_ns, ends_unix_ns, role, name FROM key ORDER BY made_unix_ns, id",
        )?;
        let read = |row: &Row<'_>| {
            Ok(Stored {
                id: row.get(0)?,
                made_unix_ns: row.get(1)?,
                ends_unix_ns: row.get(2)?,
                owner: identity(row, 3)?,
            })
        };
        statement.query_map([], read)?.collect()
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn check_name(word: &str) -> Result<()> {
    ensure!(name::is_name(word), "{word:?} is no name: expected {}", name::expected());
    Ok(())
}

/// Whether the machine's name can be given to who registers it now.
fn check_free(connection: &Connection, new: &NewMachine, now_unix_ns: u64) -> Result<()> {
    let mut statement = connection.prepare_cached(
        "SELECT holder FROM machine JOIN key ON key.name = machine.name AND key.role IN ('machine', 'meter') \
         WHERE machine.name = ?1 AND (ends_unix_ns IS NULL OR ends_unix_ns > ?2) LIMIT 1",
    )?;
    let holder: Option<String> =
        statement.query_row(params![new.name, now_unix_ns], |row| row.get(0)).optional()?;
    if let Some(holder) = holder.filter(|holder| *holder != new.holder) {
        let holder = if holder.is_empty() { "an operator".to_owned() } else { format!("`{holder}`") };
        bail!(CannotRegister::Taken { name: new.name.clone(), holder });
    }
    let count: u64 = connection.query_row("SELECT count(*) FROM machine", [], |row| row.get(0))?;
    if count >= MACHINES_MAX && !is_registered(connection, &new.name)? {
        bail!(CannotRegister::Full);
    }
    Ok(())
}

fn is_registered(connection: &Connection, machine: &str) -> rusqlite::Result<bool> {
    connection.prepare_cached("SELECT 1 FROM machine WHERE name = ?1")?.exists([machine])
}

fn insert(connection: &Connection, key: &Key, role: Role, name: &str, now: u64) -> rusqlite::Result<()> {
    let mut statement = connection
        .prepare_cached("INSERT INTO key (id, role, name, hash, made_unix_ns) VALUES (?1, ?2, ?3, ?4, ?5)")?;
    statement.execute(params![key.id(), role.name(), name, key.hash(), now]).map(drop)
}

/// Ends keys that do not end before; a time that is set already is not put off.
fn end(connection: &Connection, roles: &[Role], name_or_id: &str, at: u64) -> rusqlite::Result<usize> {
    let mut statement = connection.prepare_cached(
        "UPDATE key SET ends_unix_ns = ?3 \
         WHERE role = ?1 AND (name = ?2 OR id = ?2) AND (ends_unix_ns IS NULL OR ends_unix_ns > ?3)",
    )?;
    roles.iter().map(|role| statement.execute(params![role.name(), name_or_id, at])).sum()
}

fn identity(row: &Row<'_>, column: usize) -> rusqlite::Result<Identity> {
    let role: String = row.get(column)?;
    let role = Role::from_name(&role).ok_or_else(|| {
        let error = format!("`{role}` is no role");
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, error.into())
    })?;
    Ok(Identity { role, name: row.get(column + 1)? })
}

#[cfg(test)]
mod tests;
