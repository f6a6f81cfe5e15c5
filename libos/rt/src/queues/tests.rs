use super::*;
use crate::meter::INFRASTRUCTURE;
use crate::scheduler::RoundRobin;
use std::cell::RefCell;
use std::rc::Rc;

fn event() -> Event {
    Event { activity: INFRASTRUCTURE, work: Work::Call(Box::new(|_| ())) }
}

fn push(queues: &mut Queues, id: QueueId, times: usize) {
    (0..times).for_each(|_| assert!(queues.push(id, event()).is_ok()));
}

/// Chooses a queue and serves one event of it.
fn serve(queues: &mut Queues) -> Choice {
    let choice = queues.choose(0);
    if let Choice::Serve(id) = choice {
        assert!(queues.pop(id).is_some(), "what is chosen has work");
        queues.served(id, Record { events: 1, ns: 10 });
    }
    choice
}

fn serve_all(queues: &mut Queues) -> Vec<QueueId> {
    let choices = std::iter::repeat_with(|| serve(queues));
    choices.map_while(|choice| if let Choice::Serve(id) = choice { Some(id) } else { None }).collect()
}

/// Writes down what it is told, and decides like round-robin.
#[derive(Default)]
struct Witness {
    inner: RoundRobin,
    told: Rc<RefCell<Vec<(&'static str, QueueId)>>>,
    hold_ns: u64,
}

impl Scheduler for Witness {
    fn add_client(&mut self, client: QueueId, _parameters: Parameters) {
        self.told.borrow_mut().push(("add", client));
    }

    fn update_client(&mut self, client: QueueId, _parameters: Parameters) {
        self.told.borrow_mut().push(("update", client));
    }

    fn remove_client(&mut self, client: QueueId) {
        self.inner.remove_client(client);
        self.told.borrow_mut().push(("remove", client));
    }

    fn client_ready(&mut self, client: QueueId, now_ns: u64) {
        self.inner.client_ready(client, now_ns);
        self.told.borrow_mut().push(("ready", client));
    }

    fn client_suspended(&mut self, client: QueueId) {
        self.inner.client_suspended(client);
        self.told.borrow_mut().push(("suspended", client));
    }

    fn schedule(&mut self, now_ns: u64) -> Option<QueueId> {
        if self.hold_ns > 0 { None } else { self.inner.schedule(now_ns) }
    }

    fn poll_ready(&self, now_ns: u64) -> Option<u64> {
        self.inner.poll_ready(now_ns).map(|_| self.hold_ns)
    }

    fn resource_record(&mut self, client: QueueId, _record: Record) {
        self.told.borrow_mut().push(("record", client));
    }

    fn is_work_conserving(&self) -> bool {
        self.hold_ns == 0
    }
}

#[test]
fn queues_take_turns() {
    let mut queues = Queues::new(Box::new(RoundRobin::default()));
    let [a, b, c] = [3, 1, 2].map(|times| {
        let id = queues.add(Parameters::default());
        push(&mut queues, id, times);
        id
    });
    assert_eq!(serve_all(&mut queues), [a, b, c, a, c, a]);
    assert_eq!(queues.record(a), Some(Record { events: 3, ns: 30 }));
}

#[test]
fn a_single_ready_queue_is_served_without_asking() {
    let witness = Witness::default();
    let told = witness.told.clone();
    let mut queues = Queues::new(Box::new(witness));
    let [a, b] = [(); 2].map(|()| queues.add(Parameters::default()));
    told.borrow_mut().clear();
    push(&mut queues, a, 3);
    assert_eq!(serve_all(&mut queues), [a; 3]);
    assert_eq!(*told.borrow(), [("record", a); 3]);
    assert_eq!((queues.direct, queues.scheduled), (3, 0));

    told.borrow_mut().clear();
    push(&mut queues, a, 1);
    push(&mut queues, b, 2);
    assert_eq!(serve_all(&mut queues), [a, b, b]);
    let expected = [("ready", a), ("ready", b), ("record", a), ("record", b), ("record", b)];
    assert_eq!(told.borrow().iter().filter(|(what, _)| *what == "record").count(), 3);
    assert_eq!(told.borrow()[..3], expected[..3]);
}

#[test]
fn a_client_that_was_emptied_directly_is_asked_for_again() {
    let mut queues = Queues::new(Box::new(RoundRobin::default()));
    let [a, b, c] = [(); 3].map(|()| queues.add(Parameters::default()));
    push(&mut queues, a, 2);
    push(&mut queues, b, 1);
    assert_eq!((serve(&mut queues), serve(&mut queues)), (Choice::Serve(a), Choice::Serve(b)));
    assert_eq!(serve(&mut queues), Choice::Serve(a));
    push(&mut queues, c, 1);
    push(&mut queues, b, 1);
    assert_eq!(serve_all(&mut queues).len(), 2);
    assert_eq!(queues.choose(0), Choice::Nothing);
}

#[test]
fn suspended_queues_wait_and_lose_nothing() {
    let mut queues = Queues::new(Box::new(RoundRobin::default()));
    let [a, b] = [(); 2].map(|()| queues.add(Parameters::default()));
    push(&mut queues, a, 2);
    push(&mut queues, b, 1);
    assert_eq!(queues.suspend(a), Some(()));
    push(&mut queues, a, 1);
    assert!(queues.pop(a).is_none());
    assert_eq!(serve_all(&mut queues), [b]);
    assert_eq!(queues.resume(a), Some(()));
    assert_eq!(serve_all(&mut queues), [a; 3]);
}

#[test]
fn a_removed_queue_gives_back_what_waited_and_its_name_is_gone() {
    let mut queues = Queues::new(Box::new(RoundRobin::default()));
    let [a, b] = [(); 2].map(|()| queues.add(Parameters::default()));
    push(&mut queues, a, 2);
    push(&mut queues, b, 1);
    assert_eq!(queues.remove(a).map(|events| events.len()), Some(2));
    assert_eq!(serve_all(&mut queues), [b]);
    assert!(queues.push(a, event()).is_err());
    assert!(queues.remove(a).is_none() && queues.suspend(a).is_none() && queues.resume(a).is_none());
    assert_eq!((queues.record(a), queues.update(a, Parameters::default())), (None, None));
}

#[test]
fn a_scheduler_that_does_not_conserve_work_is_always_asked() {
    let mut queues = Queues::new(Box::new(Witness { hold_ns: 500, ..Witness::default() }));
    let a = queues.add(Parameters::default());
    assert_eq!(queues.choose(0), Choice::Nothing);
    push(&mut queues, a, 1);
    assert_eq!(queues.choose(0), Choice::Wait(500));
    queues.set_scheduler(Box::new(RoundRobin::default()));
    assert_eq!(serve_all(&mut queues), [a]);
}

#[test]
fn a_new_scheduler_hears_of_all_clients() {
    let mut queues = Queues::new(Box::new(RoundRobin::default()));
    let ids = [(); 3].map(|()| queues.add(Parameters::default()));
    ids.iter().for_each(|id| push(&mut queues, *id, 2));
    serve(&mut queues);
    let witness = Witness::default();
    let told = witness.told.clone();
    queues.set_scheduler(Box::new(witness));
    assert_eq!(*told.borrow(), ids.map(|id| ("add", id)));
    assert_eq!(serve_all(&mut queues).len(), 5);
}
