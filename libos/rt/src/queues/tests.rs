use super::*;
use crate::meter::INFRASTRUCTURE;
use crate::scheduler::Settings;

const A: Activity = Activity(1);

struct Core {
    queues: Queues,
    scheduler: Clients,
    now_ns: u64,
}

impl Core {
    fn new() -> Core {
        Core { queues: Queues::default(), scheduler: Scheduler::new(Settings::default()), now_ns: 0 }
    }

    fn add(&mut self) -> QueueId {
        self.queues.add(A, Parameters::default(), &mut self.scheduler)
    }

    fn push(&mut self, id: QueueId, times: usize) {
        for _ in 0..times {
            let pushed = self.queues.push(id, Work::Call(Box::new(|_| ())), &mut self.scheduler, self.now_ns);
            assert!(pushed.is_ok());
        }
    }

    /// Serves one piece of work, which takes 5 ms.
    fn serve(&mut self) -> Option<QueueId> {
        let Client::Queue(id) = self.scheduler.decide(self.now_ns)? else { panic!("there are only queues") };
        assert!(self.queues.pop(id).is_some(), "what is chosen has work");
        self.now_ns += 5_000_000;
        let record = Record { events: 1, ns: 10 };
        self.queues.served(id, record, &mut self.scheduler, self.now_ns);
        self.scheduler.leave(self.now_ns);
        Some(id)
    }

    fn serve_all(&mut self) -> Vec<QueueId> {
        std::iter::from_fn(|| self.serve()).collect()
    }

    fn suspend(&mut self, id: QueueId) -> Option<()> {
        self.queues.suspend(id, &mut self.scheduler, self.now_ns)
    }

    fn resume(&mut self, id: QueueId) -> Option<()> {
        self.queues.resume(id, &mut self.scheduler, self.now_ns)
    }

    fn update(&mut self, id: QueueId, weight: u32) -> Option<()> {
        let weight = NonZeroU32::new(weight).expect("no test uses 0");
        self.queues.update(id, Parameters { weight }, &mut self.scheduler, self.now_ns)
    }
}

#[test]
fn queues_take_turns() {
    let mut core = Core::new();
    let [a, b, c] = [3, 1, 2].map(|times| {
        let id = core.add();
        core.push(id, times);
        id
    });
    // Who has just run is lent some time, and its next piece of work goes before that of an equal.
    assert_eq!(core.serve_all(), [a, b, c, c, a, a]);
    assert_eq!(core.queues.record(a), Some(Record { events: 3, ns: 30 }));
}

#[test]
fn weights_are_shares_of_what_the_activity_gets() {
    let mut core = Core::new();
    let [a, b] = [(); 2].map(|()| core.add());
    core.push(a, 100);
    core.push(b, 100);
    assert_eq!((core.serve(), core.update(a, 3)), (Some(a), Some(())));
    let served: Vec<_> = (0..80).filter_map(|_| core.serve()).collect();
    let of_a = served.iter().filter(|id| **id == a).count();
    assert!((57..=63).contains(&of_a), "{of_a} of 80");
}

#[test]
fn each_activity_has_a_queue_for_work_that_names_none() {
    let mut core = Core::new();
    let [a, again, other] =
        [A, A, INFRASTRUCTURE].map(|activity| core.queues.default_of(activity, &mut core.scheduler));
    assert!(a == again && a != other);
    assert_eq!(core.queues.default_of(A, &mut core.scheduler), a);
    assert_eq!([a, other].map(|id| core.queues.activity_of(id)), [Some(A), Some(INFRASTRUCTURE)]);
    assert!(core.queues.remove(a, &mut core.scheduler, 0).is_none(), "it is always there");
}

#[test]
fn suspended_queues_wait_and_lose_nothing() {
    let mut core = Core::new();
    let [a, b] = [(); 2].map(|()| core.add());
    core.push(a, 2);
    core.push(b, 1);
    assert_eq!(core.suspend(a), Some(()));
    core.push(a, 1);
    assert!(core.queues.pop(a).is_none());
    assert_eq!(core.serve_all(), [b]);
    assert_eq!((core.update(a, 2), core.scheduler.has_ready()), (Some(()), false));
    assert_eq!(core.resume(a), Some(()));
    assert_eq!(core.resume(a), Some(()), "twice is once");
    assert_eq!(core.serve_all(), [a; 3]);
}

#[test]
fn a_queue_that_is_suspended_while_it_is_served_makes_way() {
    let mut core = Core::new();
    let [a, b] = [(); 2].map(|()| core.add());
    core.push(a, 3);
    core.push(b, 1);
    assert_eq!(core.scheduler.decide(0), Some(Client::Queue(a)));
    core.suspend(a);
    core.queues.served(a, Record { events: 1, ns: 1 }, &mut core.scheduler, 1);
    core.scheduler.leave(1);
    assert_eq!(core.serve_all(), [b]);
    core.resume(a);
    assert_eq!(core.serve_all(), [a; 3]);
}

#[test]
fn a_removed_queue_gives_back_what_waited_and_its_name_is_gone() {
    let mut core = Core::new();
    let [a, b] = [(); 2].map(|()| core.add());
    core.push(a, 2);
    core.push(b, 1);
    assert_eq!(core.queues.remove(a, &mut core.scheduler, 0).map(|work| work.len()), Some(2));
    assert_eq!(core.serve_all(), [b]);
    assert!(core.queues.push(a, Work::Call(Box::new(|_| ())), &mut core.scheduler, 0).is_err());
    assert!(core.queues.remove(a, &mut core.scheduler, 0).is_none());
    assert_eq!((core.suspend(a), core.resume(a), core.update(a, 1)), (None, None, None));
    assert_eq!((core.queues.record(a), core.queues.activity_of(a)), (None, None));
}
