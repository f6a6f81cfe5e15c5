//! Sums over the whole ledger that cost no more than what was entered since they were last asked for.

use super::query::{self, Filter};
use nom_proto::ledger::Sum;
use nom_proto::prices::Resource;
use rusqlite::Connection;
use std::collections::BTreeMap;

/// Sums up to a place in the ledger.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    through: u64,
    sums: BTreeMap<(Option<String>, String, String, Resource), Sum>,
}

impl Tally {
    /// Takes in what was entered since.
    ///
    /// # Errors
    /// If the database fails.
    pub fn advance(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let last = "SELECT coalesce(max(sequence), 0) FROM record";
        let through = connection.query_row(last, [], |row| row.get(0))?;
        let filter = Filter { after: Some(self.through), ..Filter::default() };
        for new in query::summary(connection, &filter)?.sums {
            let key = (new.tenant.clone(), new.machine.clone(), new.activity.clone(), new.resource);
            self.sums.entry(key).and_modify(|sum| add(sum, &new)).or_insert(new);
        }
        self.through = through;
        Ok(())
    }

    /// One sum for each tenant, machine, activity and resource.
    pub fn sums(&self) -> impl Iterator<Item = &Sum> {
        self.sums.values()
    }
}

fn add(sum: &mut Sum, new: &Sum) {
    sum.quantity += new.quantity;
    sum.cost_nanos += new.cost_nanos;
    sum.records += new.records;
    sum.from_unix_ns = sum.from_unix_ns.min(new.from_unix_ns);
    sum.to_unix_ns = sum.to_unix_ns.max(new.to_unix_ns);
}
