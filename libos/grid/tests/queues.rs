//! Request queues: which function of a scheduler is called when, and that nothing is lost, doubled or put out
//! of order, whatever happens.

use nom_grid::*;
use proptest::prelude::*;
use std::cell::RefCell;
use std::num::NonZeroU32;
use std::rc::Rc;

const LIMITS: QueueLimits = QueueLimits { messages: 4, bytes: 100 };

/// Writes down what it is called for, and chooses in turn.
#[derive(Debug, Default)]
struct Told {
    calls: Rc<RefCell<Vec<String>>>,
    inner: RoundRobin,
}

impl Told {
    fn tell(&self, call: String) {
        self.calls.borrow_mut().push(call);
    }
}

impl ResourceScheduler for Told {
    fn add_client(&mut self, client: ClientIndex, parameters: &ClientParameters) -> Result<(), BadClient> {
        self.tell(format!("add_client {client}"));
        self.inner.add_client(client, parameters)
    }

    fn update_client(&mut self, client: usize, _: &ClientParameters, _: u64) -> Result<(), BadClient> {
        self.tell(format!("update_client {client}"));
        Ok(())
    }

    fn remove_client(&mut self, client: ClientIndex) {
        self.tell(format!("remove_client {client}"));
        self.inner.remove_client(client);
    }

    fn schedule(&mut self, now_ns: u64) -> Option<ClientIndex> {
        let chosen = self.inner.schedule(now_ns);
        self.tell(format!("schedule -> {chosen:?}"));
        chosen
    }

    fn client_ready(&mut self, client: ClientIndex, head: QueueHead, now_ns: u64) {
        self.tell(format!("client_ready {client}"));
        self.inner.client_ready(client, head, now_ns);
    }

    fn client_suspended(&mut self, client: ClientIndex) {
        self.tell(format!("client_suspended {client}"));
        self.inner.client_suspended(client);
    }

    fn client_rejected(&mut self, client: ClientIndex) {
        self.tell(format!("client_rejected {client}"));
    }

    fn poll_ready(&mut self, now_ns: u64) -> Availability {
        self.tell("poll_ready".into());
        self.inner.poll_ready(now_ns)
    }

    fn resource_record(&mut self, client: ClientIndex, record: &ResourceRecord, _: u64) {
        self.tell(format!("resource_record {client} {}", record.bytes));
    }

    fn client_statistics(&self, client: ClientIndex) -> ClientStatistics {
        self.tell(format!("client_statistics {client}"));
        ClientStatistics::default()
    }

    fn may_be_bypassed(&self) -> bool {
        self.tell("may_be_bypassed".into());
        true
    }
}

/// What happens to request queues.
#[derive(Clone, Copy, Debug)]
enum Event {
    Add(usize),
    Update(usize),
    Push(usize),
    Next,
    Served(usize, u64),
    /// The message that was taken last comes back.
    Reject(usize),
    Resume,
    Statistics(usize),
    Remove(usize),
}

/// The functions of Table III, with what calls each: `init` and `init_core` are the making of the scheduler,
/// `load_share` is `RoutingTags`'. From an empty grid, in this order.
const CALLS: &[(Event, &[&str])] = &[
    (Event::Add(0), &["add_client 0"]),
    (Event::Add(1), &["add_client 1"]),
    (Event::Update(1), &["update_client 1"]),
    // Told when a message comes to an empty queue, and not of a second one.
    (Event::Push(0), &["client_ready 0"]),
    (Event::Push(0), &[]),
    (Event::Push(1), &["client_ready 1"]),
    (Event::Next, &["schedule -> Some(0)"]),
    (Event::Served(0, 7), &["resource_record 0 7"]),
    // After processing, the client has more: it is ready again, behind who waits.
    (Event::Next, &["client_ready 0", "schedule -> Some(1)"]),
    // Full: back into its queue, which is suspended.
    (Event::Reject(1), &["client_rejected 1", "client_suspended 1"]),
    (Event::Next, &["schedule -> Some(0)"]),
    (Event::Served(0, 9), &["resource_record 0 9"]),
    (Event::Next, &["schedule -> None", "poll_ready"]),
    (Event::Push(1), &[]),
    (Event::Resume, &["client_ready 1"]),
    (Event::Statistics(1), &["client_statistics 1"]),
    // Gone when what it has waiting is served.
    (Event::Remove(1), &[]),
    (Event::Next, &["schedule -> Some(1)"]),
    (Event::Next, &["client_ready 1", "schedule -> Some(1)"]),
    (Event::Next, &["remove_client 1", "schedule -> None"]),
    (Event::Remove(0), &["remove_client 0"]),
];

#[test]
fn each_function_is_called_when_it_should_be() {
    let calls = Rc::new(RefCell::new(Vec::new()));
    let told = Told { calls: calls.clone(), inner: RoundRobin::default() };
    let mut queues = RequestQueues::new(Box::new(told), NonZeroU32::MIN);
    assert_eq!(calls.take(), ["may_be_bypassed"]);
    for (step, (event, expected)) in CALLS.iter().enumerate() {
        match *event {
            Event::Add(client) => queues.add(client, &ClientParameters::default(), LIMITS).unwrap(),
            Event::Update(client) => queues.update(client, &ClientParameters::default(), 0).unwrap(),
            Event::Push(client) => queues.push(client, (), 10, 0).unwrap(),
            Event::Next => _ = queues.next(0),
            Event::Served(client, bytes) => {
                queues.served(client, &ResourceRecord { bytes, ..ResourceRecord::default() }, 0);
            }
            Event::Reject(client) => queues.reject(client, (), 10, 0),
            Event::Resume => queues.resume(0),
            Event::Statistics(client) => _ = queues.statistics(client),
            Event::Remove(client) => queues.remove(client),
        }
        assert_eq!(calls.take(), *expected, "step {step}: {event:?}");
    }
}

#[test]
fn who_has_too_much_waiting_is_refused_and_nobody_else() {
    let mut queues = RequestQueues::new(Box::new(RoundRobin::default()), NonZeroU32::MIN);
    (0..2).for_each(|client| queues.add(client, &ClientParameters::default(), LIMITS).unwrap());
    (0..4).for_each(|message| queues.push(0, message, 10, 0).unwrap());
    assert_eq!(queues.push(0, 4, 10, 0), Err(QueueRefusal::Full(4)));
    assert_eq!(queues.push(1, 5, 101, 0), Err(QueueRefusal::Full(5)));
    assert_eq!(queues.push(1, 6, 100, 0), Ok(()));
    assert_eq!(queues.push(2, 7, 0, 0), Err(QueueRefusal::Gone(7)));
    assert_eq!((queues.refused(0), queues.refused(1)), (1, 1));
    assert_eq!((queues.held(0), queues.held(1)), ((4, 40), (1, 100)));
    queues.remove(1);
    assert_eq!(queues.push(1, 8, 0, 0), Err(QueueRefusal::Gone(8)));
}

#[test]
fn where_nobody_waits_the_resource_is_called_directly() {
    let mut queues = RequestQueues::new(Box::new(FairQueueing::new(SharedMetric::Bytes)), NonZeroU32::MIN);
    queues.add(0, &ClientParameters::default(), LIMITS).unwrap();
    assert!(queues.is_direct());
    queues.push(0, (), 0, 0).unwrap();
    assert!(!queues.is_direct(), "who comes now would overtake");
    queues.next(0);
    assert!(queues.is_direct());
    let limiter = RateLimiter::new(SharedMetric::Bytes);
    assert!(!RequestQueues::<()>::new(Box::new(limiter), NonZeroU32::MIN).is_direct(), "it may have to wait");
}

#[test]
fn a_decision_is_for_as_many_messages_as_the_batching_factor() {
    let mut queues = RequestQueues::new(Box::new(RoundRobin::default()), NonZeroU32::new(3).unwrap());
    (0..2).for_each(|client| queues.add(client, &ClientParameters::default(), LIMITS).unwrap());
    (0..4).for_each(|message| (0..2).for_each(|client| queues.push(client, message, 0, 0).unwrap()));
    let mut order = Vec::new();
    while let Next::Serve(client, _) = queues.next(0) {
        order.push(client);
    }
    assert_eq!(order, [0, 0, 0, 1, 1, 1, 0, 1]);
}

fn scheduler(kind: u8) -> Box<dyn ResourceScheduler> {
    match kind % 4 {
        0 => Box::new(RoundRobin::default()),
        1 => Box::new(FairQueueing::new(SharedMetric::Bytes)),
        2 => Box::new(EarliestDeadline::default()),
        _ => Box::new(MarginalProfit::new(SharedMetric::Messages)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    /// Whatever comes, whoever chooses, whatever is rejected, cut, changed and removed: each message that was
    /// taken is served once, those of a client in the order in which they came; nobody waits while the
    /// resource could serve him; and what was spent is charged once, to its client.
    #[test]
    fn nothing_is_lost_doubled_or_out_of_order(
        (kind, batching) in (any::<u8>(), 1u32..4),
        steps in proptest::collection::vec((0u8..11, 0usize..4), 1..300),
    ) {
        let parameters = ClientParameters { deadline_ns: std::num::NonZeroU64::new(5), ..Default::default() };
        let mut queues = RequestQueues::new(scheduler(kind), NonZeroU32::new(batching).unwrap());
        (0..4).for_each(|client| queues.add(client, &parameters, LIMITS).unwrap());
        let mut model: Vec<std::collections::VecDeque<u64>> = vec![Default::default(); 4];
        let (mut is_suspended, mut is_leaving) = ([false; 4], [false; 4]);
        let (mut spent, mut number) = ([0u64; 4], 0);
        for (now_ns, (what, client)) in steps.into_iter().enumerate() {
            let now_ns = now_ns as u64;
            match what {
                0..4 => {
                    number += 1;
                    let taken = queues.push(client, number, 10, now_ns).is_ok();
                    prop_assert_eq!(taken, model[client].len() < LIMITS.messages && !is_leaving[client]);
                    model[client].extend(taken.then_some(number));
                }
                4..7 => match queues.next(now_ns) {
                    Next::Serve(client, message) => {
                        prop_assert!(!is_suspended[client]);
                        prop_assert_eq!(Some(message), model[client].pop_front());
                        let record = ResourceRecord { bytes: message, ..Default::default() };
                        queues.served(client, &record, now_ns);
                        spent[client] += message;
                    }
                    Next::After(_) => prop_assert!(false, "none of these makes anybody wait"),
                    Next::Nothing => {
                        let waits = |client: usize| !model[client].is_empty() && !is_suspended[client];
                        prop_assert!(!(0..4).any(waits), "somebody waits for nothing");
                    }
                },
                7 => if let Next::Serve(client, message) = queues.next(now_ns) {
                    prop_assert_eq!(Some(&message), model[client].front());
                    queues.reject(client, message, 10, now_ns);
                    is_suspended[client] = true;
                },
                // Only a part of it was served: it cost something, and is the next again.
                8 => if let Next::Serve(client, message) = queues.next(now_ns) {
                    prop_assert_eq!(Some(&message), model[client].front());
                    queues.put_back(client, message, 10, now_ns);
                    queues.served(client, &ResourceRecord { bytes: 3, ..Default::default() }, now_ns);
                    spent[client] += 3;
                },
                9 => {
                    queues.resume(now_ns);
                    is_suspended = [false; 4];
                }
                _ if number % 7 == 0 => {
                    queues.remove(client);
                    is_leaving[client] = true;
                }
                _ => _ = queues.replace_scheduler(scheduler(number as u8), |_| parameters.clone(), now_ns),
            }
            for (client, model) in model.iter().enumerate() {
                prop_assert_eq!(queues.held(client), (model.len(), 10 * model.len()));
            }
            prop_assert_eq!(queues.waiting(), model.iter().map(|model| model.len()).sum::<usize>());
        }
        let charged: u64 = (0..4).map(|client| queues.consumed(client).bytes).sum();
        prop_assert_eq!(charged + queues.consumed_by_gone().bytes, spent.iter().sum::<u64>());
        for client in (0..4).filter(|client| !is_leaving[*client]) {
            prop_assert_eq!(queues.consumed(client).bytes, spent[client]);
        }
    }
}
