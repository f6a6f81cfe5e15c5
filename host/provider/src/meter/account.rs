//! From counts and prices to records.

use super::Charge;
use super::shares::Shares;
use super::totals::Totals;
use crate::clock::Moment;
use nom_proto::ledger::NewRecord;
use nom_proto::prices::{Prices, Resource};

/// What a machine is charged for.
#[derive(Debug)]
pub struct Account {
    machine: String,
    activity: String,
    /// Distinguishes the records of this account from those of others of the same machine.
    mark: String,
    next: u64,
    /// Since when and from which counts on the open records are.
    since_unix_ns: u64,
    since: Totals,
    /// Price of each resource; 0 where there is none.
    prices: [f64; Resource::COUNT],
    closed: Vec<NewRecord>,
}

fn by_resource(prices: &Prices) -> [f64; Resource::COUNT] {
    Resource::ALL.map(|resource| {
        let price = prices.prices.iter().find(|price| price.resource == resource);
        price.map_or(0.0, |price| price.dollars)
    })
}

impl Account {
    /// One that begins now; `kind` tells it from the other accounts of the same meter.
    pub fn new(charge: &Charge, kind: &str, totals: Totals, prices: &Prices, now: Moment) -> Account {
        Account {
            machine: charge.machine.clone(),
            activity: charge.activity.clone(),
            mark: format!("{}/{kind}", now.unix_ns),
            next: 0,
            since_unix_ns: now.unix_ns,
            since: totals,
            prices: by_resource(prices),
            closed: Vec::new(),
        }
    }

    /// Goes on at other prices; what was consumed until now is charged at the old ones.
    pub fn change(&mut self, totals: Totals, shares: &mut Shares, prices: &Prices, now: Moment) {
        let prices = by_resource(prices);
        if prices != self.prices {
            self.close(totals, shares, now);
            self.prices = prices;
        }
    }

    /// Ends the open records, one of each activity that has a part and one of the machine for the rest, and
    /// begins the next. Where nothing was consumed there is no record, and where
    /// no time has passed, as after the clock was set back, the open ones go on.
    pub fn close(&mut self, totals: Totals, shares: &mut Shares, now: Moment) {
        if now.unix_ns <= self.since_unix_ns {
            return;
        }
        let consumed = totals.since(self.since);
        for (resource, price) in Resource::ALL.into_iter().zip(self.prices) {
            let (parts, rest) = shares.divide(resource, consumed.of(resource));
            for (activity, mut quantity) in parts.into_iter().chain([(self.activity.clone(), rest)]) {
                while quantity > 0 {
                    // As of a large machine whose provider was away for days.
                    let part = quantity.min(NewRecord::QUANTITY_MAX);
                    let record = self.record(activity.clone(), (resource, price), part, now);
                    self.closed.push(record);
                    quantity -= part;
                }
            }
        }
        self.since_unix_ns = now.unix_ns;
        self.since = totals;
    }

    /// Whether a resource has a price now.
    pub fn has_price(&self, resource: Resource) -> bool {
        self.prices[resource as usize] > 0.0
    }

    /// Takes the records that have ended.
    pub fn take(&mut self) -> Vec<NewRecord> {
        std::mem::take(&mut self.closed)
    }

    fn record(
        &mut self,
        activity: String,
        (resource, unit_price): (Resource, f64),
        quantity: u64,
        now: Moment,
    ) -> NewRecord {
        // The machine's name first: its meter may enter no others.
        let id = format!("{}/{}/{}", self.machine, self.mark, self.next);
        self.next += 1;
        NewRecord {
            id,
            machine: self.machine.clone(),
            activity,
            resource,
            quantity,
            unit: resource.counted_in().to_owned(),
            unit_price,
            from_unix_ns: self.since_unix_ns,
            to_unix_ns: now.unix_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nom_proto::prices::Price;

    fn at(unix_ns: u64) -> Moment {
        Moment { unix_ns, steady_ns: 0 }
    }

    fn prices(out: f64) -> Prices {
        let price = Price { resource: Resource::NetworkOut, dollars: out, since_unix_ns: 0 };
        Prices { revision: 1, source: String::new(), age_seconds: 0.0, prices: vec![price], next: Vec::new() }
    }

    fn bytes(sent: u64, received: u64) -> Totals {
        Totals::default().with(Resource::NetworkOut, sent).with(Resource::NetworkIn, received)
    }

    fn none() -> Shares {
        Shares::default()
    }

    fn account() -> Account {
        let (machine, activity) = ("web-1".to_owned(), "memcached".to_owned());
        let charge = Charge { provider: String::new(), key: String::new(), machine, activity };
        Account::new(&charge, "n", bytes(1000, 500), &prices(1.0), at(10))
    }

    #[test]
    fn consumption_is_split_where_the_price_changes() {
        let mut account = account();
        account.change(bytes(1100, 500), &mut none(), &prices(10.0), at(20));
        account.change(bytes(1150, 500), &mut none(), &prices(10.0), at(25));
        account.close(bytes(1400, 600), &mut none(), at(30));
        let records = account.take();
        let seen: Vec<_> =
            records.iter().map(|r| (r.quantity, r.unit_price, r.from_unix_ns, r.to_unix_ns)).collect();
        assert_eq!(seen, [(100, 1.0, 10, 20), (300, 10.0, 20, 30), (100, 0.0, 20, 30)]);
        assert_eq!(records[2].resource, Resource::NetworkIn);
        assert!(account.take().is_empty());
        let ids: std::collections::BTreeSet<_> = records.iter().map(|record| &record.id).collect();
        assert_eq!(ids.len(), 3);
    }

    #[test]
    fn no_time_makes_no_record_and_forgets_nothing() {
        let mut account = account();
        account.close(bytes(1100, 500), &mut none(), at(10));
        account.close(bytes(1200, 500), &mut none(), at(5));
        assert!(account.take().is_empty(), "the clock was set back");
        account.close(bytes(1300, 500), &mut none(), at(40));
        assert_eq!(account.take()[0].quantity, 300);
        account.close(bytes(1300, 500), &mut none(), at(50));
        assert!(account.take().is_empty(), "nothing was consumed");
    }

    #[test]
    fn what_is_more_than_a_record_may_hold_is_in_several() {
        let mut account = account();
        account.close(bytes(1000 + 2 * NewRecord::QUANTITY_MAX + 7, 500), &mut none(), at(30));
        let records = account.take();
        let quantities: Vec<u64> = records.iter().map(|record| record.quantity).collect();
        assert_eq!(quantities, [NewRecord::QUANTITY_MAX, NewRecord::QUANTITY_MAX, 7]);
        let ids: std::collections::BTreeSet<_> = records.iter().map(|record| &record.id).collect();
        assert_eq!(ids.len(), 3);
    }

    #[test]
    fn each_activity_has_a_record_and_all_together_are_the_machines() {
        use super::super::shares::Claim;
        let (mut account, mut shares) = (account(), Shares::default());
        let claim =
            |name: &str, sent| Claim { name: name.into(), at_ns: 1, consumed: [0, sent, 0], memory_bytes: 0 };
        shares.hear(vec![claim("memcached/gold", 60), claim("memcached/silver", 30)]);
        account.close(bytes(1100, 540), &mut shares, at(30));
        let records = account.take();
        let seen: Vec<_> = records.iter().map(|record| (record.activity.as_str(), record.quantity)).collect();
        let expected =
            [("memcached/gold", 60), ("memcached/silver", 30), ("memcached", 10), ("memcached", 40)];
        assert_eq!(seen, expected);
        let ids: std::collections::BTreeSet<_> = records.iter().map(|record| &record.id).collect();
        assert_eq!(ids.len(), 4);
    }
}
