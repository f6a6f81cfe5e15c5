use super::*;
use alloc::string::ToString;
use proptest::prelude::*;

fn error(text: &str) -> String {
    text.parse::<GridPlan>().expect_err(text).to_string()
}

#[test]
fn what_cannot_be_followed_is_refused_with_a_reason() {
    for (text, reason) in [
        ("at disk fair", "resource `disk`: expected input, cpu"),
        ("at input lottery", "scheduler `lottery`: expected round-robin, fair, deadline, rate, profit"),
        ("at input fair metric=joules", "metric `joules`: expected time, bytes, sent, messages"),
        ("at input fair; at input rate", "`input` is there twice"),
        ("at input fair; for gold weight=0", "`weight=0`: expected a whole number from 1"),
        ("at input fair; for gold weight=4294967296", "`weight=4294967296`: expected a whole number from 1"),
        ("at input fair; for gold weight=1; for gold weight=2", "`gold` is there twice"),
        (
            "at input round-robin; for gold weight=2",
            "`weight` of `gold`: no scheduler goes by it, expected one of fair",
        ),
        ("at input fair; for gold deadline=5", "`deadline` of `gold`: no scheduler goes by it"),
        ("at input fair; for gold rate=5", "`rate` of `gold`: no scheduler goes by it"),
        ("at input deadline", "the scheduler `deadline` of `input`: no activity has a `deadline`"),
        ("at input profit", "the scheduler `profit` of `input`: no activity has a `earns`"),
        (
            "at input rate; for gold connections=5",
            "the scheduler `rate` of `input`: no activity has a `rate`",
        ),
        (
            "at input deadline; at cpu fair; for gold deadline=5",
            "`input` goes by deadlines, and gets its core's time by weight",
        ),
        ("at cpu round-robin", "the scheduler `round-robin` of `cpu`: expected fair"),
        ("for gold weight=2", "no resource with a scheduler"),
        ("at input fair batching=0", "`batching=0`: expected a whole number from 1"),
        ("for gold memory=0", "`memory=0`: expected a whole number from 1"),
        ("for gold delay=10001", "`delay=10001`: expected a whole number from 0 to 10000"),
        (
            "at input profit; for gold earns=much",
            "`earns=much`: expected a whole number from 1 on, or contract",
        ),
        ("at input fair; for gold earns=contract", "`earns` of `gold`: no scheduler goes by it"),
        ("give gold all", "`give`: expected at RESOURCE SCHEDULER"),
        (
            "at input fair; for gold shares=1",
            "`shares=1`: expected weight=, deadline=, rate=, earns=, group=, connections=, memory= or delay=",
        ),
    ] {
        let error = error(text);
        assert!(error.contains(reason), "{text}: {error}");
    }
}

#[test]
fn an_activity_that_no_rule_names_is_refused() {
    let plan: GridPlan = "at input fair; for gold weight=2".parse().unwrap();
    assert_eq!(plan.check_names(["others", "gold"].into_iter()), Ok(()));
    assert_eq!(plan.check_names(["silver"].into_iter()), Err(BadGrid::NoActivity("gold".into())));
}

#[test]
fn whoever_earns_by_a_contract_must_have_one() {
    let plan: GridPlan = "at input profit; for gold earns=contract; for silver earns=7".parse().unwrap();
    assert_eq!(plan.to_string().parse(), Ok(plan.clone()));
    assert_eq!(plan.check_contracts(|name| name == "gold"), Ok(()));
    let error = plan.check_contracts(|name| name == "silver").expect_err("gold has none");
    assert_eq!(error, BadGrid::NoContract("gold".into()));
    assert!(error.to_string().contains("expected a `utility`"), "{error}");
    let earns = |name| plan.terms_of(name).parameters().earns;
    assert_eq!((earns("gold"), earns("silver")), (alloc::vec![], alloc::vec![EarningStep::always(7)]));
}

#[test]
fn groups_that_cannot_be_are_refused_with_a_reason() {
    for (text, reason) in [
        ("group team fair; for gold group=team", "no resource with a scheduler"),
        ("at input fair; group team fair", "the group `team`: nobody is in it, expected an activity that is"),
        ("at input fair; for gold group=team", "`gold` is in the group `team`: expected one that a `group`"),
        ("at input fair; group team lottery", "scheduler `lottery`: expected round-robin, fair"),
        ("at input fair; group team fair queue=9", "`queue=9`: expected metric=, weight= or rate="),
        ("at input fair; group", "`group`: expected group NAME SCHEDULER"),
        ("at input fair; group team fair; group team rate; for gold group=team", "`team` is there twice"),
        (
            "at input fair; group team deadline; for gold group=team deadline=5",
            "`team` goes by deadlines, and gets its core's time by weight",
        ),
        (
            "at input profit; group team fair; for gold group=team; for silver earns=5",
            "the scheduler `profit` above groups",
        ),
        (
            "at input round-robin; group team fair weight=5; for gold group=team",
            "`weight` of `team`: no scheduler goes by it",
        ),
        (
            "at input fair; group team profit; for gold group=team weight=5; for silver earns=5",
            "`earns` of `silver`: no scheduler goes by it",
        ),
        (
            "at input fair; group team profit; for gold group=team weight=5",
            "the scheduler `profit` of `team`: no activity has a `earns`",
        ),
        (
            "at input rate; group team fair; for gold group=team",
            "the scheduler `rate` of `input`: no activity",
        ),
    ] {
        let error = error(text);
        assert!(error.contains(reason), "{text}: {error}");
    }
}

/// A plan's schedulers: the group has the share of its weight, and whoever earns most in it gets that.
#[test]
fn a_plan_of_groups_is_followed() {
    let text = "at input fair metric=messages batching=1; group team profit metric=messages weight=60; \
                for gold group=team earns=9; for silver group=team earns=3; \
                for bronze weight=30; for iron weight=10";
    let plan: GridPlan = text.parse().unwrap();
    assert_eq!(plan.to_string().parse(), Ok(plan.clone()));
    let names = ["gold", "silver", "bronze", "iron"];
    let (scheduler, clients) = plan.input_scheduler(names.into_iter()).unwrap();
    let mut queues = crate::RequestQueues::new(scheduler, NonZeroU32::MIN);
    let limits = crate::QueueLimits { messages: 1000, bytes: usize::MAX };
    for (client, parameters) in clients.iter().enumerate() {
        queues.add(client, parameters, limits).unwrap();
        (0..1000).for_each(|_| queues.push(client, (), 0, 0).unwrap());
    }
    let mut got = [0u32; 4];
    for _ in 0..1000 {
        let crate::Next::Serve(client, ()) = queues.next(0) else { panic!("everybody waits") };
        let record = crate::ResourceRecord { messages: 1, ..crate::ResourceRecord::default() };
        queues.served(client, &record, 0);
        got[client] += 1;
    }
    assert!(got[0].abs_diff(600) < 3 && got[1] == 0 && got[2].abs_diff(300) < 3, "{got:?}");
    let change = "group team fair weight=80; for gold group=team; for silver group=team";
    let changed = plan.changed(change).unwrap();
    let weights: Vec<_> = changed.groups().map(|group| group.terms.weight.map(NonZeroU32::get)).collect();
    assert_eq!((weights, changed.terms().count()), (alloc::vec![Some(80)], 4));
}

#[test]
fn a_change_replaces_what_it_names_and_nothing_else() {
    let plan: GridPlan = "at input fair queue=9; for gold weight=2; for silver weight=3".parse().unwrap();
    let changed = plan.changed("for gold weight=7").unwrap();
    let weight = |name| changed.terms_of(name).weight.map(NonZeroU32::get);
    assert_eq!((weight("gold"), weight("silver"), weight("others")), (Some(7), Some(3), None));
    assert_eq!(changed.at(GridResource::Input).unwrap().queue.get(), 9);
    assert!(plan.changed("at input round-robin").is_err(), "the weights would be nobody's");
}

fn plan() -> impl Strategy<Value = GridPlan> {
    let terms = proptest::collection::btree_map("[a-z]{1,8}", (1u32.., 1u32.., 0u64.., 0u32..=10_000), 1..5);
    (0usize..3, 1u32.., 1u32.., terms).prop_map(|(metric, batching, queue, terms)| {
        let mut input = ResourcePlan::new(GridResource::Input, SchedulerKind::Fair);
        input.metric = METRICS[metric].1;
        (input.batching, input.queue) = (batching.try_into().unwrap(), queue.try_into().unwrap());
        let terms = terms.into_iter().map(|(name, (weight, connections, memory, delay))| ActivityTerms {
            name,
            weight: NonZeroU32::new(weight),
            connections: NonZeroU32::new(connections),
            memory: NonZeroU64::new(memory),
            delay_us: Some(delay),
            ..ActivityTerms::default()
        });
        GridPlan::checked(alloc::vec![input], alloc::vec![], terms.collect()).expect("a plan")
    })
}

proptest! {
    #[test]
    fn a_plan_is_read_as_it_is_written(plan in plan()) {
        prop_assert_eq!(plan.to_string().parse(), Ok(plan));
    }

    #[test]
    fn no_text_breaks_the_reader(text in "(at|for|input|fair|gold|;|=|[0-9]| |\\PC)*") {
        let _ = text.parse::<GridPlan>();
    }
}
