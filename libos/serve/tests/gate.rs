//! Who is served before whom, when all want more than there is: activities by their weights, whatever the
//! others do. Each activity is a machine of clients; the server's core alone takes time.

mod common;
#[path = "common/tenants.rs"]
mod tenants;

use tenants::{FIRST, Habit, SECOND, WARM_UP, World};

const PLAN: &str = "at input fair; for gold weight=50; for silver weight=33; for bronze weight=17";

/// What an answer takes to a client and his next request back: less than half of that on one computer, but
/// its clients want to run as well.
const WAY_NS: u64 = 500_000;

/// Whether each share is its weight, by a hundredth of it.
fn assert_shares(got: [(u64, u64); 3]) {
    let sum: u64 = got.iter().map(|(ns, _)| ns).sum();
    for ((ns, _), weight) in got.iter().zip([50, 33, 17]) {
        let share = *ns as f64 / sum as f64;
        assert!((share * 100.0 / f64::from(weight) - 1.0).abs() < 0.01, "{share} of {weight}: {got:?}");
    }
}

#[test]
fn shares_are_the_weights_however_many_clients_each_has() {
    for clients in [[40, 40, 40], [30, 40, 200]] {
        let mut world = World::new(PLAN);
        (0..3).for_each(|machine| world.connect(machine, clients[machine]));
        world.run(WARM_UP);
        assert_shares(world.measure(5 * SECOND));
    }
}

#[test]
fn shares_are_the_weights_though_answers_take_their_time_to_clients_of_few_connections() {
    let mut world = World::new(PLAN);
    world.way_ns = WAY_NS;
    (0..3).for_each(|machine| world.connect(machine, 24));
    world.run(WARM_UP);
    assert_shares(world.measure(5 * SECOND));
}

#[test]
fn what_is_sent_is_shared_by_weight_however_long_each_answer_is() {
    let sent = |world: &World| {
        let consumed = world.server.borrow_mut().consumption();
        [0, 1, 2].map(|index| consumed[FIRST + index].traffic.sent_bytes)
    };
    for times in [[8, 8, 8], [4, 100, 1000], [1000, 100, 4]] {
        let mut world = World::that_says(&PLAN.replace("fair", "fair metric=sent"), times);
        (0..3).for_each(|machine| world.connect(machine, 40));
        world.run(WARM_UP);
        let before = sent(&world);
        world.run(5 * SECOND);
        let now = sent(&world);
        assert_shares(std::array::from_fn(|index| (now[index] - before[index], 0)));
    }
}

/// Gold and silver have half of the core together, and of that gold three quarters; bronze has the rest.
#[test]
fn a_group_has_its_share_of_the_core() {
    let mut world = World::new(
        "at input fair; group team fair weight=70; for gold group=team weight=75; \
         for silver group=team weight=25; for bronze weight=70",
    );
    (0..3).for_each(|machine| world.connect(machine, [40, 40, 200][machine]));
    world.run(WARM_UP);
    let got = world.measure(2 * SECOND).map(|(ns, _)| ns as f64);
    let sum: f64 = got.iter().sum();
    for (ns, share) in got.iter().zip([0.375, 0.125, 0.5]) {
        assert!((ns / sum / share - 1.0).abs() < 0.03, "{} of {share}: {got:?}", ns / sum);
    }
}

#[test]
fn without_a_grid_whoever_has_more_clients_gets_more() {
    let mut world = World::new("");
    [30, 40, 200].into_iter().enumerate().for_each(|(machine, count)| world.connect(machine, count));
    world.run(WARM_UP);
    let [gold, _, bronze] = world.measure(SECOND);
    assert!(bronze.0 > 4 * gold.0, "{gold:?} and {bronze:?}");
}

/// What gold and silver are answered beside a bronze tenant who does what `hostile` says, against beside one
/// who asks like them.
fn beside(hostile: impl Fn(&mut World)) {
    let answered = |bronze: &dyn Fn(&mut World)| {
        let mut world = World::new(PLAN);
        world.way_ns = WAY_NS;
        (0..2).for_each(|machine| world.connect(machine, 24));
        bronze(&mut world);
        world.run(WARM_UP);
        let [gold, silver, _] = world.measure(3 * SECOND);
        [gold.1, silver.1]
    };
    let (calm, beset) = (answered(&|world| world.connect(2, 24)), answered(&hostile));
    for (calm, beset) in calm.into_iter().zip(beset) {
        // Who wants less than its share leaves more to the others.
        assert!(beset as f64 >= 0.99 * calm as f64, "{beset} answers, {calm} in peace");
    }
}

#[test]
fn a_flood_takes_nothing_from_others() {
    beside(|world| {
        world.connect(2, 40);
        world.flood = Some((2, 40));
    });
}

#[test]
fn streams_full_of_requests_take_nothing_from_others() {
    beside(|world| {
        world.machines[2].2.habit = Habit::Flood;
        world.connect(2, 8);
    });
}

#[test]
fn whoever_never_reads_takes_nothing_from_others() {
    beside(|world| {
        world.machines[2].2.habit = Habit::NeverRead;
        world.connect(2, 100);
    });
}

#[test]
fn thousands_of_connections_take_nothing_from_others() {
    beside(|world| world.connect(2, 2_000));
}

/// Though there is always one of its frames to come, and there were others' once.
#[test]
fn who_is_alone_again_waits_in_no_queue() {
    let mut world = World::new(PLAN);
    (0..2).for_each(|machine| world.connect(machine, 60));
    world.run(WARM_UP);
    let queued = |world: &World| world.server.borrow_mut().consumption()[FIRST].queued_ns;
    let beside = queued(&world);
    assert!(beside > SECOND, "{beside} ns");
    let silver = &mut world.machines[1].0;
    silver.flows().collect::<Vec<_>>().into_iter().for_each(|flow| silver.abort(flow));
    world.run(SECOND / 5);
    let alone = queued(&world);
    let answered = world.measure(SECOND / 2)[0].1;
    assert_eq!((queued(&world) - alone, answered > 1_000), (0, true), "{answered} answers");
}

#[test]
fn who_has_all_the_connections_that_it_may_gets_no_more() {
    let mut world = World::new("for bronze connections=3");
    (0..3).for_each(|machine| world.connect(machine, 8));
    world.run(WARM_UP);
    let connections = world.server.borrow_mut().consumption();
    let connections: Vec<u64> = connections.iter().map(|record| record.connections).collect();
    assert_eq!(connections[FIRST..], [8, 8, 3]);
}

#[test]
fn who_has_used_up_his_memory_is_refused_and_nobody_else() {
    const MOST: u64 = 64 << 10;
    let mut world = World::new(&format!("for gold memory=16384; for bronze memory={MOST}"));
    world.machines[2].2.habit = Habit::NeverRead;
    (0..3).for_each(|machine| world.connect(machine, [8, 8, 100][machine]));
    world.run(WARM_UP);
    let answered = world.measure(SECOND).map(|(_, answers)| answers);
    let [gold, silver, bronze] = world.server.borrow_mut().consumption()[FIRST..] else { panic!("three") };
    assert!(answered[0] > 100 && answered[1] > 100, "{answered:?}");
    assert_eq!((gold.refused, gold.connections, silver.refused), (0, 8, 0), "{gold:?}");
    assert!(gold.memory_bytes <= 16 << 10, "they read what they asked for: {gold:?}");
    // Of what was refused last, an answer may be there.
    assert!(bronze.refused > 0 && bronze.connections < 100, "{bronze:?}");
    assert!(bronze.memory_bytes > MOST / 2 && bronze.memory_bytes < MOST + 2048, "{bronze:?}");
    for (stack, ..) in &mut world.machines {
        stack.flows().collect::<Vec<_>>().into_iter().for_each(|flow| stack.abort(flow));
    }
    world.run(WARM_UP);
    let left = world.server.borrow_mut().consumption();
    assert!(left.iter().all(|record| record.memory_bytes == 0), "{left:?}");
}
