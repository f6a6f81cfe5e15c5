//! Cores of a server are given back and taken again under load, over a network that loses and reorders and a
//! device that steers as it likes: no client notices.

#[path = "../common/mod.rs"]
mod common;
mod world;

use world::{Case, Steering, World};

fn run(case: Case) -> World {
    let mut world = World::new(case);
    world.run();
    world.check();
    world
}

#[test]
fn a_core_is_given_back_and_taken_again() {
    let world = run(Case { cores: 2, orders: vec![1, 2, 1, 0], ..Case::new(1) });
    assert_eq!(world.serving(), 2);
    let moved: u64 = world.forwards().iter().map(|forwards| forwards.adopted).sum();
    assert!(moved > 5, "{moved} flows moved");
}

#[test]
fn who_leaves_says_that_it_has_no_connections_any_more() {
    let orders = [[2; 20].as_slice(), &[1]].concat();
    let case = Case { cores: 2, orders, requests: 300, window_ns: 100_000, is_charged: true, ..Case::new(4) };
    let world = run(case);
    let said = world.connections(1);
    assert!(said.iter().any(|connections| *connections > 0), "{said:?}");
    assert_eq!(said.last(), Some(&0), "{said:?}");
}

#[test]
fn cores_that_are_not_to_be_had_come_later() {
    let mut world = World::new(Case { cores: 3, ..Case::new(2) });
    for (order, most, serving) in [(1, 3, 1), (0, 1, 1), (0, 2, 2), (0, 3, 3), (2, 1, 2)] {
        world.lend(most);
        world.order(order);
        world.pass(2);
        assert_eq!(world.serving(), serving, "of {most} for order {order}");
    }
}

/// The device has the last word on how many cores can leave, and it is asked when their flows have moved.
#[test]
fn cores_that_the_device_does_not_let_go_serve_on() {
    let mut world = World::new(Case { cores: 3, is_governed: false, ..Case::new(5) });
    let flows: Vec<_> = (0..9).map(|_| world.call()).collect();
    let answer = world.say(flows[0], "PUT /cores HTTP/1.1\r\nContent-Length: 1\r\n\r\n3");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    for (least, serving) in [(3, 3), (1, 1)] {
        world.hold(least);
        world.say(flows[1], "PUT /cores HTTP/1.1\r\nContent-Length: 1\r\n\r\n1");
        world.pass(2);
        assert_eq!(world.serving(), serving);
        for flow in &flows {
            let answer = world.say(*flow, "GET /cores HTTP/1.1\r\n\r\n");
            assert!(answer.ends_with(&format!("\r\n\r\n{serving}\n")), "{answer}");
        }
    }
    let moved: u64 = world.forwards().iter().map(|forwards| forwards.adopted).sum();
    assert!(moved > 9, "{moved} flows moved, some of them back");
}

#[test]
fn the_control_port_orders_and_its_clients_move_too() {
    let mut world =
        World::new(Case { cores: 3, is_governed: false, steering: Steering::Hash, ..Case::new(9) });
    let flows: Vec<_> = (0..8).map(|_| world.call()).collect();
    for (round, (ordered, serving)) in [(1, 1), (2, 2), (0, 3), (1, 1)].into_iter().enumerate() {
        // All but one have said half of what they want to say.
        let (speaker, others) = (flows[round], flows.iter().filter(|flow| **flow != flows[round]));
        for flow in others.clone() {
            assert_eq!(world.say(*flow, "GET /cores HT"), "");
        }
        let body = ordered.to_string();
        let answer = world.say(speaker, &format!("PUT /cores HTTP/1.1\r\nContent-Length: 1\r\n\r\n{body}"));
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        world.pass(1);
        assert_eq!(world.serving(), serving);
        for flow in others {
            let answer = world.say(*flow, "TP/1.1\r\n\r\n");
            assert!(answer.ends_with(&format!("\r\n\r\n{serving}\n")), "{answer}");
        }
    }
    let metrics = world.say(flows[0], "GET /metrics HTTP/1.1\r\n\r\n");
    let moved: u64 = world.forwards().iter().map(|forwards| forwards.adopted).sum();
    assert!(metrics.contains("\nnom_cores_serving 1\n") && metrics.contains("\nnom_cores 3\n"), "{metrics}");
    assert!(moved >= 8 && metrics.contains("\nnom_flows_refused_total 0\n"), "{metrics}");
}

#[test]
fn no_client_notices_whatever_is_ordered() {
    for seed in 0..200 {
        run(Case::from_seed(seed));
    }
}

#[test]
fn a_device_may_steer_at_random() {
    for seed in 1000..1100 {
        run(Case { steering: Steering::Random, loss: 0, ..Case::from_seed(seed) });
    }
}

#[test]
fn no_client_notices_that_handshakes_are_not_remembered() {
    for seed in 2000..2100 {
        let steering = if seed % 2 == 0 { Steering::Random } else { Steering::Learning };
        run(Case { steering, loss: 0, half_open_max: (seed % 3) as usize, ..Case::from_seed(seed) });
    }
}

/// A frame comes to a flow's new core before the flow, and to its old core after the flow has gone: in its
/// second round it finds it.
#[test]
fn a_frame_may_miss_its_flow_once() {
    const OLD: usize = 2;
    const NEW: usize = 0;
    let case = Case { cores: 3, clients: 1, steering: Steering::To(OLD), ..Case::new(7) };
    let mut world = World::new(case);
    world.connect();
    while world.answered() < 10 {
        world.round();
    }
    world.order(2);
    // The first core decides, and follows.
    world.poll(NEW);
    world.poll(NEW);
    world.steer(Steering::To(NEW));
    while !world.has_received(NEW) {
        world.exchange();
    }
    let before = world.forwards();
    for core in [NEW, OLD, 1, OLD, NEW] {
        world.poll(core);
    }
    let after = world.forwards();
    assert_eq!((after[OLD].given, after[NEW].adopted), (1, 1));
    assert!(after[OLD].forwarded > before[OLD].forwarded, "the old core missed it");
    world.steer(Steering::Learning);
    world.run();
    world.check();
}
