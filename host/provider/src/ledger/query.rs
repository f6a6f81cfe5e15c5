//! Reading the ledger.

use super::record;
use nom_proto::ledger::{Page, Record, Sum, Summary};
use nom_proto::prices::Resource;
use rusqlite::types::{Type, Value};
use rusqlite::{Connection, Row, params_from_iter};
use serde::Deserialize;

/// Records of a page if nobody says how many, and at most.
const LIMIT: u32 = 1000;
const LIMIT_MAX: u32 = 10_000;

/// Which records.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    /// Paid for by this tenant.
    pub tenant: Option<String>,
    /// Of this machine.
    pub machine: Option<String>,
    /// Of this activity.
    pub activity: Option<String>,
    /// Of this resource.
    pub resource: Option<Resource>,
    /// That begin then or later, in nanoseconds since 1970.
    pub from: Option<u64>,
    /// That begin before.
    pub to: Option<u64>,
    /// Behind this place in the ledger.
    pub after: Option<u64>,
    /// At most so many.
    pub limit: Option<u32>,
}

impl Filter {
    /// A WHERE clause, and its parameters.
    pub fn clause(&self) -> (String, Vec<Value>) {
        let time = |ns: u64| Value::Integer(i64::try_from(ns).unwrap_or(i64::MAX));
        let conditions = [
            ("tenant =", self.tenant.clone().map(Value::Text)),
            ("machine =", self.machine.clone().map(Value::Text)),
            ("activity =", self.activity.clone().map(Value::Text)),
            ("resource =", self.resource.map(|resource| Value::Text(resource.name().to_owned()))),
            ("from_unix_ns >=", self.from.map(time)),
            ("from_unix_ns <", self.to.map(time)),
            ("sequence >", self.after.map(time)),
        ];
        let mut clause = String::from("WHERE 1");
        let mut values = Vec::new();
        for (condition, value) in conditions {
            if let Some(value) = value {
                clause.push_str(&format!(" AND {condition} ?"));
                values.push(value);
            }
        }
        (clause, values)
    }
}

/// Some of the records, in their order.
///
/// # Errors
/// If the database fails.
pub fn page(connection: &Connection, filter: &Filter) -> rusqlite::Result<Page> {
    let limit = filter.limit.unwrap_or(LIMIT).clamp(1, LIMIT_MAX) as usize;
    let (clause, mut values) = filter.clause();
    // One more than is shown tells whether there is more.
    values.push(Value::Integer(limit as i64 + 1));
    let mut statement = connection.prepare_cached(&format!(
        "SELECT id, machine, activity, resource, quantity, unit, unit_price, from_unix_ns, to_unix_ns, \
         sequence, cost_nanos, tenant FROM record {clause} ORDER BY sequence LIMIT ?"
    ))?;
    let read = |row: &Row<'_>| {
        Ok(Record {
            entered: record::read(row)?,
            sequence: row.get(9)?,
            cost_nanos: row.get(10)?,
            tenant: row.get(11)?,
        })
    };
    let mut records: Vec<Record> =
        statement.query_map(params_from_iter(values), read)?.collect::<Result<_, _>>()?;
    let more = records.len() > limit;
    records.truncate(limit);
    let next = records.last().filter(|_| more).map(|record| record.sequence);
    Ok(Page { records, next })
}

/// Sums of the records that the filter lets through.
///
/// # Errors
/// If the database fails.
pub fn summary(connection: &Connection, filter: &Filter) -> rusqlite::Result<Summary> {
    let (clause, values) = filter.clause();
    let (quantity, cost) = (exact_sum("quantity"), exact_sum("cost_nanos"));
    let mut statement = connection.prepare_cached(&format!(
        "SELECT machine, activity, resource, unit, count(*), min(from_unix_ns), max(to_unix_ns), tenant, \
         {quantity}, {cost} FROM record {clause} \
         GROUP BY tenant, machine, activity, resource ORDER BY machine, activity, resource, tenant"
    ))?;
    let sum = |row: &Row<'_>| {
        Ok(Sum {
            machine: row.get(0)?,
            activity: row.get(1)?,
            resource: resource(row, 2)?,
            unit: row.get(3)?,
            records: row.get(4)?,
            from_unix_ns: row.get(5)?,
            to_unix_ns: row.get(6)?,
            tenant: row.get(7)?,
            quantity: count(row, 8)?,
            cost_nanos: sum_of(row, 10)?,
        })
    };
    let sums: Vec<Sum> = statement.query_map(params_from_iter(values), sum)?.collect::<Result<_, _>>()?;
    let cost_nanos = sums.iter().map(|sum| sum.cost_nanos).sum();
    Ok(Summary { sums, cost_nanos })
}

/// How much of a resource was consumed by everybody since a time.
///
/// # Errors
/// If the database fails.
pub fn consumed_since(connection: &Connection, resource: Resource, unix_ns: u64) -> rusqlite::Result<u128> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {} FROM record WHERE resource = ?1 AND from_unix_ns >= ?2",
        exact_sum("quantity")
    ))?;
    statement.query_row(rusqlite::params![resource.name(), unix_ns], |row| count(row, 0))
}

/// Two columns of a query that [`sum_of`] makes the sum of a column: SQLite's own is an error for everybody
/// where 64 bits do not hold it, be it by one record of one machine. Halves of 32 bits hold four billion.
pub fn exact_sum(column: &str) -> String {
    format!("coalesce(sum({column} >> 32), 0), coalesce(sum({column} & 0xffffffff), 0)")
}

/// The sum that begins at a column of a row.
pub fn sum_of(row: &Row<'_>, column: usize) -> rusqlite::Result<i128> {
    let (high, low): (i64, i64) = (row.get(column)?, row.get(column + 1)?);
    Ok((i128::from(high) << 32) + i128::from(low))
}

/// The same of counts, which are never negative.
pub fn count(row: &Row<'_>, column: usize) -> rusqlite::Result<u128> {
    let sum = sum_of(row, column)?;
    u128::try_from(sum)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(column, Type::Integer, error.into()))
}

/// The resource that a column names.
pub fn resource(row: &Row<'_>, column: usize) -> rusqlite::Result<Resource> {
    let name: String = row.get(column)?;
    Resource::from_name(&name).ok_or_else(|| {
        let error = format!("`{name}` is no resource");
        rusqlite::Error::FromSqlConversionFailure(column, Type::Text, error.into())
    })
}
