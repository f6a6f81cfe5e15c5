use super::*;
use nom_proto::ledger::Summary;
use nom_proto::prices::Resource;
use proptest::prelude::*;

fn record(id: &str, quantity: u64, unit_price: f64) -> NewRecord {
    NewRecord {
        id: id.into(),
        machine: "web-1".into(),
        activity: "memcached".into(),
        resource: Resource::NetworkOut,
        quantity,
        unit: "byte".into(),
        unit_price,
        from_unix_ns: 1_700_000_000_000_000_000,
        to_unix_ns: 1_700_000_001_000_000_000,
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

/// Enters records of machines that nobody pays for.
fn enter(ledger: &Ledger, records: Vec<NewRecord>) -> impl Future<Output = Result<Entered, LedgerError>> {
    ledger.enter(records.into_iter().map(|record| (record, None)).collect())
}

fn ledger() -> Ledger {
    Ledger::open(None).expect("in memory")
}

fn page(ledger: &Ledger, filter: Filter) -> nom_proto::ledger::Page {
    block_on(ledger.ask(move |connection| query::page(connection, &filter))).expect("answered")
}

#[test]
fn a_record_is_entered_once_however_often_it_is_sent() {
    let ledger = ledger();
    let two = vec![record("a", 125_000_000, 10.0), record("b", 1, 10.0)];
    assert_eq!(block_on(enter(&ledger, two.clone())).expect("good"), Entered { recorded: 2, known: 0 });
    assert_eq!(block_on(enter(&ledger, two)).expect("good"), Entered { recorded: 0, known: 2 });
    let page = page(&ledger, Filter::default());
    let costs: Vec<i64> = page.records.iter().map(|record| record.cost_nanos).collect();
    assert_eq!((costs, page.next), (vec![10_000_000_000, 80], None));
}

#[test]
fn a_batch_with_a_bad_record_is_not_entered_at_all() {
    let ledger = ledger();
    block_on(enter(&ledger, vec![record("a", 1, 1.0)])).expect("good");
    let change = |change: fn(&mut NewRecord)| {
        let mut bad = record("c", 1, 1.0);
        change(&mut bad);
        bad
    };
    let rows = [
        (record("a", 2, 1.0), "id", true),
        (change(|record| record.id = String::new()), "id", false),
        (change(|record| record.machine = "x".repeat(129)), "machine", false),
        (change(|record| record.activity = "\u{7}".into()), "activity", false),
        (change(|record| record.unit = "Gbit".into()), "unit", false),
        (change(|record| record.unit_price = -1.0), "unit_price", false),
        (change(|record| record.unit_price = f64::INFINITY), "unit_price", false),
        (change(|record| record.unit_price = 1e300), "unit_price", false),
        (change(|record| record.quantity = u64::MAX), "quantity", false),
        (change(|record| record.quantity = NewRecord::QUANTITY_MAX + 1), "quantity", false),
        (change(|record| (record.quantity, record.unit_price) = (125_000_000, 1.1e9)), "unit_price", false),
        (change(|record| record.to_unix_ns = record.from_unix_ns), "to_unix_ns", false),
        (change(|record| record.to_unix_ns = u64::MAX), "to_unix_ns", false),
    ];
    for (bad, field, contradicts) in rows {
        let error = block_on(enter(&ledger, vec![record("b", 1, 1.0), bad])).expect_err(field);
        let LedgerError::Bad(error) = error else { panic!("{error}") };
        assert_eq!((error.index, error.field, error.contradicts), (1, field, contradicts), "{error}");
    }
    assert_eq!(page(&ledger, Filter::default()).records.len(), 1);
}

#[test]
fn nothing_in_the_file_can_be_changed() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("ledger");
    let ledger = Ledger::open(Some(&path)).expect("made");
    block_on(enter(&ledger, vec![record("a", 1, 1.0)])).expect("good");
    let other = Connection::open(&path).expect("a second connection");
    for statement in [
        "UPDATE record SET cost_nanos = 0",
        "DELETE FROM record",
        "INSERT OR REPLACE INTO record SELECT * FROM record",
        "REPLACE INTO record SELECT sequence + 1, id, machine, activity, resource, 0, unit, 0, \
         from_unix_ns, to_unix_ns, 0, tenant FROM record",
    ] {
        let error = other.execute(statement, []).expect_err(statement).to_string();
        assert!(error.contains("the ledger only grows"), "{statement}: {error}");
    }
    drop(ledger);
    let again = Ledger::open(Some(&path)).expect("opened again");
    assert_eq!(page(&again, Filter::default()).records[0].entered, record("a", 1, 1.0));
}

#[test]
fn another_database_is_no_ledger() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("other");
    Connection::open(&path).expect("made").execute_batch("CREATE TABLE other (x)").expect("made");
    let error = format!("{:#}", Ledger::open(Some(&path)).expect_err("no ledger"));
    assert!(error.contains("other") && error.contains("not a ledger"), "{error}");
    std::fs::write(&path, "no database at all, but a text of more than a hundred characters".repeat(4))
        .expect("written");
    assert!(Ledger::open(Some(&path)).is_err());
    assert!(Ledger::open(Some(&directory.path().join("no/such/directory"))).is_err());
}

#[test]
fn pages_follow_one_another_and_filters_hold() {
    let ledger = ledger();
    let mut records: Vec<NewRecord> = (0..25).map(|n| record(&n.to_string(), n, 1.0)).collect();
    for (n, record) in records.iter_mut().enumerate() {
        record.machine = format!("web-{}", n % 2);
        record.from_unix_ns += n as u64;
    }
    block_on(enter(&ledger, records)).expect("good");
    let mut filter = Filter { limit: Some(10), ..Filter::default() };
    let mut seen = Vec::new();
    loop {
        let page = page(&ledger, filter.clone());
        seen.extend(page.records.iter().map(|record| record.entered.quantity));
        match page.next {
            Some(next) => filter.after = Some(next),
            None => break,
        }
    }
    assert_eq!(seen, (0..25).collect::<Vec<u64>>());
    let from = 1_700_000_000_000_000_000;
    let filter = Filter {
        machine: Some("web-1".into()),
        resource: Some(Resource::NetworkOut),
        from: Some(from + 3),
        to: Some(from + 7),
        ..Filter::default()
    };
    let quantities = page(&ledger, filter).records.iter().map(|r| r.entered.quantity).collect::<Vec<_>>();
    assert_eq!(quantities, [3, 5]);
}

#[test]
fn the_bill_has_every_mandatory_column_and_adds_up() {
    let ledger = ledger();
    let mut records = vec![record("a", 125_000_000, 1.0), record("b", 250_000_000, 1.0)];
    records.push(record("c", 125_000_000, 10.0));
    let mut core = record("d", 1_500_000_000, 0.5);
    (core.resource, core.unit) = (Resource::Core, "core-nanosecond".into());
    records.push(core);
    block_on(enter(&ledger, records)).expect("good");
    let bill = block_on(ledger.ask(|connection| Bill::of(connection, &Filter::default()))).expect("answered");
    let text = bill.to_csv().expect("written");
    let mut reader = csv::Reader::from_reader(&text[..]);
    let headers = reader.headers().expect("headers").clone();
    for column in MANDATORY {
        assert!(headers.iter().any(|header| header == column), "{column} is absent");
    }
    let rows: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>().expect("rows");
    let value = |row: usize, column: &str| {
        let index = headers.iter().position(|header| header == column).expect("a column");
        rows[row][index].to_owned()
    };
    assert_eq!(rows.len(), 3, "one row for each resource and price");
    assert_eq!((value(0, "BilledCost"), value(0, "PricingQuantity")), ("0.750000000".into(), "1.5".into()));
    assert_eq!((value(1, "BilledCost"), value(1, "PricingQuantity")), ("3.000000000".into(), "3".into()));
    assert_eq!((value(2, "BilledCost"), value(2, "ListUnitPrice")), ("10.000000000".into(), "10".into()));
    assert_eq!((value(1, "ConsumedQuantity"), value(1, "ConsumedUnit")), ("375000000".into(), "B".into()));
    assert_eq!(value(0, "ServiceCategory"), "Compute");
    assert_eq!(value(0, "ChargePeriodStart"), "2023-11-14T22:00:00Z");
    assert_eq!(value(0, "BillingPeriodEnd"), "2023-12-01T00:00:00Z");
}

/// A ledger as it was when a record could have any count and cost of 63 bits, with two of the most of one
/// group and two of another.
fn with_immense_records(path: &Path) -> Ledger {
    let ledger = Ledger::open(Some(path)).expect("made");
    let other = Connection::open(path).expect("a second connection");
    let row = "INSERT INTO record (id, machine, activity, resource, quantity, unit, unit_price, \
               from_unix_ns, to_unix_ns, cost_nanos) \
               VALUES (?1, 'web-1', ?2, 'network_out', ?3, 'byte', 0.0, 1, 2, ?3)";
    for (id, activity) in [("a", "x"), ("b", "x"), ("c", "y"), ("d", "y")] {
        other.execute(row, rusqlite::params![id, activity, i64::MAX]).expect("entered");
    }
    ledger
}

#[test]
fn no_record_is_so_large_that_sums_end() {
    let directory = tempfile::tempdir().expect("a directory");
    let ledger = with_immense_records(&directory.path().join("ledger"));
    let two = 2 * i128::from(i64::MAX);
    let summary = block_on(ledger.ask(|connection| summary(connection, &Filter::default()))).expect("sums");
    let seen: Vec<_> = summary.sums.iter().map(|sum| (sum.quantity, sum.cost_nanos)).collect();
    assert_eq!((seen, summary.cost_nanos), (vec![(two as u128, two); 2], 2 * two));
    let json = serde_json::to_string(&summary).expect("plain data");
    assert_eq!(serde_json::from_str::<Summary>(&json).expect("the same"), summary);
    let mut tally = Tally::default();
    let tallied = ledger.ask(move |connection| {
        tally.advance(connection)?;
        Ok(tally.sums().map(|sum| sum.cost_nanos).sum::<i128>())
    });
    assert_eq!(block_on(tallied).expect("sums"), 2 * two);
    let since = |connection: &Connection| consumed_since(connection, Resource::NetworkOut, 0);
    assert_eq!(block_on(ledger.ask(since)).expect("a sum"), 2 * two as u128);
    let bill = block_on(ledger.ask(|connection| Bill::of(connection, &Filter::default()))).expect("a bill");
    let text = String::from_utf8(bill.to_csv().expect("written")).expect("text");
    assert!(text.contains(",18446744073709551614,B,") && text.contains("18446744073.709551614"), "{text}");
}

/// Columns of FOCUS 1.2 whose feature level is mandatory.
const MANDATORY: [&str; 21] = [
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "ContractedCost",
    "EffectiveCost",
    "InvoiceIssuerName",
    "ListCost",
    "PricingQuantity",
    "PricingUnit",
    "ProviderName",
    "PublisherName",
    "ServiceCategory",
    "ServiceName",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn sums_are_exact(quantities in prop::collection::vec((0u64..1 << 40, 1e-6..1e3), 1..50)) {
        let ledger = ledger();
        let records: Vec<NewRecord> = quantities
            .iter()
            .enumerate()
            .map(|(n, &(quantity, price))| record(&n.to_string(), quantity, price))
            .collect();
        block_on(enter(&ledger, records)).expect("good");
        let all = page(&ledger, Filter::default());
        let summary = block_on(ledger.ask(|connection| query::summary(connection, &Filter::default())))
            .expect("answered");
        prop_assert_eq!(summary.sums.len(), 1);
        let quantity: u128 = quantities.iter().map(|(quantity, _)| u128::from(*quantity)).sum();
        prop_assert_eq!(summary.sums[0].quantity, quantity);
        let costs = all.records.iter().map(|record| i128::from(record.cost_nanos));
        prop_assert_eq!(summary.cost_nanos, costs.sum::<i128>());
    }
}
