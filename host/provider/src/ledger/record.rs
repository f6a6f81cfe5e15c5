//! Entering records.

use super::{Charged, LedgerError};
use crate::name;
use nom_economy::ledger::Money;
use nom_economy::units::Dollars;
use nom_proto::ledger::{Entered, NewRecord};
use rusqlite::{Connection, OptionalExtension, Row, params};

/// Most characters of an id: there is room for a machine's name, two numbers and what is between them.
const ID_MAX: usize = 256;

/// A record that cannot be entered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("records[{index}].{field}: {detail}, expected {expected}")]
pub(crate) struct BadRecord {
    /// Which of its batch, from 0.
    pub index: usize,
    /// The field at fault.
    pub field: &'static str,
    /// What is wrong with it.
    pub detail: String,
    /// What was expected.
    pub expected: String,
    /// Whether it contradicts what is in the ledger.
    pub contradicts: bool,
}

type Fault = (&'static str, String, String);

/// Enters a batch into an open transaction.
///
/// # Errors
/// The first record that cannot be entered. The transaction is to be given up then.
pub fn enter(transaction: &Connection, batch: &[Charged]) -> Result<Entered, LedgerError> {
    let mut entered = Entered { recorded: 0, known: 0 };
    for (index, (record, tenant)) in batch.iter().enumerate() {
        let bad = |contradicts| {
            move |(field, detail, expected)| BadRecord { index, field, detail, expected, contradicts }
        };
        let cost = check(record).map_err(bad(false))?;
        match find(transaction, &record.id)? {
            None => {
                insert(transaction, record, tenant.as_deref(), cost)?;
                entered.recorded += 1;
            }
            Some(known) if known == *record => entered.known += 1,
            Some(_) => {
                let detail = format!("{:?} is in the ledger with other values", record.id);
                let expected = "the same record or another id".to_owned();
                return Err(bad(true)(("id", detail, expected)).into());
            }
        }
    }
    Ok(entered)
}

/// Checks a record by itself, and gives its cost in nano-dollars.
fn check(record: &NewRecord) -> Result<i64, Fault> {
    if !name::is_text(&record.id, ID_MAX) {
        return Err(("id", format!("{:?}", record.id), name::expected_text(ID_MAX)));
    }
    check_name("machine", &record.machine)?;
    check_name("activity", &record.activity)?;
    let unit = record.resource.counted_in();
    if record.unit != unit {
        return Err(("unit", format!("{:?}", record.unit), format!("{unit:?}, which counts its resource")));
    }
    if !(record.unit_price >= 0.0 && record.unit_price.is_finite()) {
        return Err(("unit_price", record.unit_price.to_string(), "a finite number, at least 0".to_owned()));
    }
    if record.to_unix_ns <= record.from_unix_ns {
        return Err(("to_unix_ns", record.to_unix_ns.to_string(), "a time after from_unix_ns".to_owned()));
    }
    let numbers = [
        ("quantity", record.quantity, NewRecord::QUANTITY_MAX),
        ("to_unix_ns", record.to_unix_ns, i64::MAX.unsigned_abs()),
    ];
    for (field, number, most) in numbers {
        if number > most {
            return Err((field, number.to_string(), format!("at most {most}")));
        }
    }
    cost_nanos(record)
}

fn check_name(field: &'static str, word: &str) -> Result<(), Fault> {
    if name::is_name(word) {
        return Ok(());
    }
    Err((field, format!("{word:?}"), name::expected()))
}

fn cost_nanos(record: &NewRecord) -> Result<i64, Fault> {
    let units = record.quantity as f64 / record.resource.counts_per_unit() as f64;
    let dollars = Dollars::new(units * record.unit_price).ok();
    let nanos = dollars.and_then(|dollars| i64::try_from(Money::from(dollars).nanos()).ok());
    nanos.filter(|nanos| *nanos <= NewRecord::COST_MAX_NANOS).ok_or_else(|| {
        let detail = format!("{} for {} {}", record.unit_price, record.quantity, record.unit);
        ("unit_price", detail, "a cost of at most a billion dollars".to_owned())
    })
}

fn insert(
    transaction: &Connection,
    record: &NewRecord,
    tenant: Option<&str>,
    cost_nanos: i64,
) -> rusqlite::Result<()> {
    let mut statement = transaction.prepare_cached(
        "INSERT INTO record (id, machine, activity, resource, quantity, unit, unit_price, from_unix_ns, \
         to_unix_ns, cost_nanos, tenant) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?;
    statement.execute(params![
        record.id,
        record.machine,
        record.activity,
        record.resource.name(),
        record.quantity,
        record.unit,
        record.unit_price,
        record.from_unix_ns,
        record.to_unix_ns,
        cost_nanos,
        tenant,
    ])?;
    Ok(())
}

fn find(transaction: &Connection, id: &str) -> rusqlite::Result<Option<NewRecord>> {
    let mut statement = transaction.prepare_cached(
        "SELECT id, machine, activity, resource, quantity, unit, unit_price, from_unix_ns, to_unix_ns \
         FROM record WHERE id = ?1",
    )?;
    statement.query_row([id], read).optional()
}

/// A record from a row that begins with its columns.
pub fn read(row: &Row<'_>) -> rusqlite::Result<NewRecord> {
    Ok(NewRecord {
        id: row.get(0)?,
        machine: row.get(1)?,
        activity: row.get(2)?,
        resource: super::query::resource(row, 3)?,
        quantity: row.get(4)?,
        unit: row.get(5)?,
        unit_price: row.get(6)?,
        from_unix_ns: row.get(7)?,
        to_unix_ns: row.get(8)?,
    })
}
