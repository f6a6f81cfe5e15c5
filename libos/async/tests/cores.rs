//! Tasks that have other cores do something: two loops, which take turns.

use nom_async::{AsyncService, NoSuchCore};
use nom_port::world::{Clock, Doorbell, Idle, Wakeup};
use nom_rt::EventLoop;
use nom_wire::Memory;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

struct Still;

impl Clock for Still {
    fn now_ns(&self) -> u64 {
        0
    }
}

impl Idle for Still {
    fn sleep(&mut self, _: Option<u64>) -> Wakeup {
        Wakeup::default()
    }
}

struct Deaf;

impl Doorbell for Deaf {
    fn ring(&self, _: usize) {}
}

#[test]
fn another_core_does_what_it_is_asked_and_answers() {
    let mut loops = [0, 1].map(|core| EventLoop::new(core, Still, Still, Arc::new(Deaf)));
    let remotes = [0, 1].map(|core: usize| loops[core].handle().remote());
    let serve = |_, _| async { Ok::<(), NoSuchCore>(()) };
    let service = AsyncService::<Memory>::new(loops[0].handle(), serve).among(&remotes);
    let (core, heard) = (service.core().clone(), Rc::new(RefCell::new(Vec::new())));
    let hears = heard.clone();
    assert_eq!(core.cores(), 2);
    service.core().spawn(async move {
        for (number, factor) in [(1, 2), (0, 3), (2, 4)] {
            let there = move |handle: nom_rt::Handle| async move {
                handle.yield_now().await;
                (handle.remote().core(), 7 * factor)
            };
            let answered = core.call(number, there).await;
            hears.borrow_mut().push(answered);
        }
    });
    (0..20).for_each(|turn: usize| _ = loops[turn % 2].turn());
    assert_eq!(heard.take(), [Ok((1, 14)), Ok((0, 21)), Err(NoSuchCore(2))]);
}
