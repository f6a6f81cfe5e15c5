//! A service on a stack, as the event loop polls it.

mod closing;
mod elastic;

use crate::clients::{Clients, Measured, Migration};
use crate::control::{Control, Desk, Order};
use crate::crowd::Crowd;
use crate::front::Front;
use crate::gate::Gate;
use crate::metered::Metered;
use crate::payers::{Consumption, Payers};
use crate::reserve::{Free, Reserve};
use crate::steering::{Course, Steering};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
pub use closing::Closing;
use core::time::Duration;
use nom_elastic::{ElasticCore, ForwardCounts};
use nom_grid::{GridPlan, GridResource};
use nom_net::batch::{DELAY_MAX, DelayTooLong};
use nom_net::{Config, Ear, Instant, Setup, Stack};
use nom_port::nic::Nic;
use nom_port::world::Clock;
use nom_rt::handle::Handle;
use nom_rt::poller::{Poller, Progress};
use nom_rt::rest::Thresholds;
use nom_service::Service;
use nom_service::{Activity, Governor, Rules, Setting, Window};

/// Where a service is to be found.
#[derive(Clone, Debug, Default)]
pub struct Ports {
    /// TCP ports.
    pub tcp: Vec<u16>,
    /// UDP ports.
    pub udp: Vec<u16>,
}

/// The stack of one core with the clients on it, and who governs it.
pub struct Server<N: Nic, C: Clock, S: Service<N::Buffer>> {
    stack: Measured<N, C>,
    front: Front<N::Buffer, S>,
    /// If somebody is served before another.
    gate: Option<Gate<N::Buffer>>,
    setting: Setting,
    /// How its core waits as long as it is not told to poll.
    waiting: Thresholds,
    steering: Option<Steering>,
    /// If memory is kept free for whoever needs some next.
    reserve: Option<Reserve>,
    crowd: Crowd,
    /// When the governor hears of the service's demand next.
    demand_ns: u64,
    closing: Option<closing::Part>,
    /// Frames received before the last poll, and when that was, if it found any.
    frames: u64,
    busy_ns: Option<u64>,
    /// When the clients are looked at next.
    check_ns: u64,
    /// Until when there is nothing to do unless frames come: 0 after a poll that found some, or a change.
    rests_until_ns: u64,
}

/// How often a governor hears what the service makes of memory.
const DEMAND_NS: u64 = 1_000_000_000;

impl<N: Nic, C: Clock, S: Service<N::Buffer>> Server<N, C, S> {
    /// `service` at `ports` of the address that `config` gives, on the running core's queue pair. `clock` is
    /// the one that the core's loop reads.
    pub fn new(nic: N, clock: C, config: Config, ports: &Ports, service: S) -> Self {
        let clients = Clients::new(service);
        let mut stack = Stack::new(Metered::new(nic, clock), config);
        ports.tcp.iter().for_each(|port| stack.listen(*port));
        ports.udp.iter().for_each(|port| stack.bind(*port));
        Server {
            stack,
            front: Front::new(clients),
            gate: None,
            setting: Setting::default(),
            waiting: Thresholds::ADAPTIVE,
            steering: None,
            reserve: None,
            crowd: Crowd::default(),
            demand_ns: 0,
            closing: None,
            frames: 0,
            busy_ns: None,
            check_ns: 0,
            rests_until_ns: 0,
        }
    }

    /// The stack, to ask it about itself.
    pub fn stack(&self) -> &Measured<N, C> {
        &self.stack
    }

    /// Makes it one of several, each on a core of its own: what arrives here for another is passed on.
    pub fn set_core(&mut self, core: ElasticCore<N::Buffer, Migration<N::Buffer, S::Connection>>) {
        self.stack.share(core.presence());
        self.front.core = Some(core);
    }

    /// Tests this server's addresses from `now` on and finds out others; `ear` hears of it. Of several cores
    /// the first does it, after it knows the others, and tells them: [`Server::await_addresses`].
    pub fn discover(&mut self, now: Instant, setup: Setup, ear: Ear) {
        self.rests_until_ns = 0;
        self.front.ear = ear;
        self.stack.discover(now, setup);
    }

    /// Has the addresses that another core finds out.
    pub fn await_addresses(&mut self) {
        self.rests_until_ns = 0;
        self.stack.follow();
    }

    /// What went from core to core, as this one counts it.
    pub fn forwards(&self) -> ForwardCounts {
        self.front.counts()
    }

    /// Keeps so many bytes of memory free, as `free` tells how many are: buffers that nobody uses are given
    /// back for them, and then what the service has least use for. Without either, nobody new is let in.
    pub fn keep_free(&mut self, bytes: u64, free: Free) {
        self.reserve = Some(Reserve::new(free, bytes));
    }

    /// Looks for what is free, and for what a crowd has left. Returns when to look again though nothing
    /// happens.
    #[inline]
    fn look_for_memory(&mut self, now_ns: u64) -> Option<u64> {
        let (memory, clients) = (self.stack.nic(), &mut self.front.clients);
        let left_ns = self.crowd.look(now_ns, clients.open(), memory);
        let Some(reserve) = self.reserve.as_mut() else { return left_ns };
        let due_ns = reserve.look(now_ns, memory, &mut clients.service);
        clients.go_by(reserve);
        left_ns.into_iter().chain(due_ns).min()
    }

    /// Ends the service: what it and its clients held is free.
    pub fn into_stack(self) -> Measured<N, C> {
        self.stack
    }

    /// Sets the batching delay W.
    ///
    /// # Errors
    /// If it is longer than [`DELAY_MAX`]; the old delay stays.
    pub fn set_delay(&mut self, delay: Duration) -> Result<(), DelayTooLong> {
        self.rests_until_ns = 0;
        self.stack.set_delay(delay)?;
        self.setting.batching_delay = delay;
        Ok(())
    }

    /// Sets how the core of `handle`'s loop waits, unless a governor has it poll.
    pub fn set_waiting(&mut self, waiting: Thresholds, handle: &Handle) {
        self.waiting = waiting;
        if !self.setting.polls {
            handle.set_thresholds(waiting);
        }
    }

    /// Measures requests from now on, and lets `governor` set the working point. `handle` is that of the loop
    /// that polls this server.
    pub fn govern(&mut self, governor: Box<dyn Governor>, handle: &Handle) {
        let payers = self.stack.nic().payers().cloned();
        if let (Some(desk), Some(payers)) = (&mut self.front.desk, &payers) {
            let activities = (0..).map(Activity).zip(payers.rules().names());
            desk.service.set_paid(activities.map(|(activity, _)| governor.is_paid(activity)).collect());
        }
        let wants_shares = governor.wants_shares() && payers.is_some();
        self.steer(handle).govern(governor);
        if let Some(stopwatch) = self.stack.nic().stopwatch().filter(|_| wants_shares) {
            stopwatch.shares();
        }
    }

    /// Measures requests from now on, and answers questions about that at the control port. This is server
    /// number `index` of those that share `control`.
    pub fn control(&mut self, control: Arc<Control>, index: usize, handle: &Handle) {
        self.steer(handle);
        self.stack.listen(control.port());
        self.front.desk = Some(Clients::new(Desk::new(control, index, handle.clone())));
        if self.is_elastic() {
            self.front.lend();
        }
    }

    /// Charges everything from now on, and the core's time, to the activities that `rules` tell apart.
    /// `handle` is that of the loop that polls this server.
    pub fn charge(&mut self, rules: Arc<Rules>, handle: &Handle) {
        let payers = Payers::new(rules, handle.clone());
        self.front.clients.charge_to(payers.clone());
        self.stack.nic().charge_to(payers);
    }

    /// Serves activities, which must be told apart already ([`Server::charge`]), as `plan` says from now on;
    /// what it says of activities that there are not is left out. `handle` is that of the loop that polls
    /// this server.
    pub fn share(&mut self, plan: &GridPlan, handle: &Handle) {
        let Some(payers) = self.stack.nic().payers().cloned() else { return };
        match &mut self.gate {
            Some(gate) => gate.follow(plan),
            gate => *gate = Gate::new(plan, payers.clone(), handle.clone()),
        }
        let most = |name: &str| plan.terms_of(name).connections.map(|most| most.get());
        self.front.clients.set_most(payers.rules().names().map(most).collect());
        payers.hold(payers.rules().names().map(|name| plan.terms_of(name).delay_us));
        let memory = |name: &str| plan.terms_of(name).memory;
        self.front.clients.set_memory(payers.rules().names().map(memory).collect());
        if plan.at(GridResource::Cpu).is_some() {
            for (number, name) in payers.rules().names().enumerate() {
                handle.set_weight(Activity(number as u32), plan.terms_of(name).parameters().weight);
            }
        }
        if let Some(desk) = &mut self.front.desk {
            desk.service.set_plan(plan.clone(), payers.rules().clone());
        }
    }

    /// What was consumed so far, by the numbers of the activities; nothing if they are not told apart.
    pub fn consumption(&mut self) -> Vec<Consumption> {
        self.stack.nic().payers().map_or_else(Vec::new, |payers| payers.records())
    }

    fn steer(&mut self, handle: &Handle) -> &mut Steering {
        self.stack.nic().start();
        self.steering.get_or_insert_with(|| Steering::new(handle.clone()))
    }

    /// Does what those who govern want. Returns when to look again; never, if there is nothing to look at.
    fn steer_at(&mut self, now_ns: u64) -> Option<u64> {
        let mut steering = self.steering.take()?;
        let wanted = steering.look(now_ns);
        self.set_wanted(&steering, wanted);
        if let Some(Order { delay, cores, hold, grid }) = self.front.order() {
            if let Some(plan) = grid {
                self.share(&plan, &steering.handle);
            }
            let is_let_go = steering.obey(hold);
            let batching_delay = delay.unwrap_or(self.setting.batching_delay);
            if let (Some(_), Some(core)) = (cores, &self.front.core) {
                core.ring_first();
            }
            let cores = cores.unwrap_or(self.setting.cores);
            self.set(Setting { batching_delay, cores, ..self.setting }, &steering.handle);
            if is_let_go {
                self.end_window(&mut steering, now_ns);
            }
        }
        let due_ns = self.observe(&mut steering, now_ns);
        self.steering = Some(steering);
        due_ns
    }

    /// Ends the window if it is over. Returns when the present one will be.
    fn observe(&mut self, steering: &mut Steering, now_ns: u64) -> Option<u64> {
        if let Course::Open(due_ns) = steering.course(self.stack.nic().stopwatch()?, now_ns) {
            return due_ns;
        }
        self.end_window(steering, now_ns);
        steering.idle_until(now_ns)
    }

    /// Ends the window.
    fn end_window(&mut self, steering: &mut Steering, now_ns: u64) {
        let (traffic, setting) = (self.stack.nic().traffic(), self.in_force());
        let Some(stopwatch) = self.stack.nic().stopwatch() else { return };
        let clients = self.front.clients.open();
        let is_overridden = steering.end_window();
        let window = Window { clients, is_overridden, ..stopwatch.close(now_ns, traffic, setting) };
        if let Some(governor) = &mut steering.governor {
            if governor.wants_demand() && now_ns >= self.demand_ns {
                self.demand_ns = now_ns + DEMAND_NS;
                self.front.clients.service.demand().iter().for_each(|demand| governor.hear(demand));
            }
            let payers = self.stack.nic().payers().cloned();
            if let (Some(payers), true) = (&payers, governor.wants_shares())
                && let Some(stopwatch) = self.stack.nic().stopwatch()
            {
                governor.divide(stopwatch.shares().close(&window, payers.records()));
            }
            let setting = self.stack.nic().governing(|| governor.observe(&window));
            if let Some(payers) = &payers {
                payers.bill(governor.rates());
            }
            self.front.earned = governor.earned(&mut |activity, nanos| {
                payers.iter().for_each(|payers| payers.earn(activity, nanos));
            });
            if let (Some(gate), Some(payers)) = (&mut self.gate, &payers)
                && gate.goes_by_contracts()
            {
                gate.earn(&**governor, &payers.records());
            }
            if governor.wants_consumed(now_ns) {
                self.tell_consumed(&mut **governor, now_ns);
            }
            let wanted = steering.begin_window(setting);
            self.set_wanted(steering, wanted);
        }
        self.front.report(&mut self.stack, window);
    }

    /// Tells what activities have consumed of this core so far, if they are told apart.
    fn tell_consumed(&mut self, governor: &mut dyn Governor, now_ns: u64) {
        let Some(payers) = self.stack.nic().payers().cloned() else { return };
        if let Some(stopwatch) = self.stack.nic().stopwatch() {
            governor.consumed(now_ns, payers.consumed(stopwatch));
        }
    }

    /// Sets what the governor wants, if it wants anything.
    fn set_wanted(&mut self, steering: &Steering, wanted: Option<Setting>) {
        if let (Some(governor), Some(setting)) = (&steering.governor, wanted) {
            self.set(governor.within(setting, self.setting), &steering.handle);
        }
    }

    /// The setting as it is carried out: of cores, those that serve now.
    fn in_force(&self) -> Setting {
        let cores = if self.is_elastic() { self.serving() as u16 } else { 0 };
        Setting { cores, ..self.setting }
    }

    fn set(&mut self, setting: Setting, handle: &Handle) {
        let batching_delay = setting.batching_delay.min(DELAY_MAX);
        if self.setting.batching_delay != batching_delay {
            self.set_delay(batching_delay).expect("no longer than the longest");
        }
        if core::mem::replace(&mut self.setting.polls, setting.polls) != setting.polls {
            let thresholds = if setting.polls { Thresholds::POLLING } else { self.waiting };
            handle.set_thresholds(thresholds);
        }
        if core::mem::replace(&mut self.setting.memory_mib, setting.memory_mib) != setting.memory_mib {
            let bytes = (setting.memory_mib > 0).then(|| u64::from(setting.memory_mib) << 20);
            self.front.clients.service.set_memory(bytes);
        }
        if core::mem::replace(&mut self.setting.clients_max, setting.clients_max) != setting.clients_max {
            self.front.clients.set_limit(setting.clients_max);
        }
        if core::mem::replace(&mut self.setting.urgent, setting.urgent) != setting.urgent
            && let Some(payers) = self.stack.nic().payers()
        {
            payers.hurry(setting.urgent);
        }
        self.setting.cores = setting.cores;
        if let Some(core) = &mut self.front.core {
            core.order(setting.cores);
        }
    }

    /// Tells the stopwatch since when frames may have lain unseen: since the last poll, if that found some
    /// and so took its time; after a sleep none have.
    fn look(&mut self, now_ns: u64) {
        if let Some(stopwatch) = self.stack.nic().stopwatch() {
            stopwatch.look(self.busy_ns.unwrap_or(now_ns));
        }
    }

    /// What a poll would find if it would surely find nothing: a core that waits for frames looks for them
    /// and for little else. With other cores, a governor or a control port there is always something to do.
    #[inline]
    fn rest(&mut self, now_ns: u64) -> Option<Progress> {
        if self.front.clients.service.has_due() {
            return None;
        }
        let is_alone = self.steering.is_none() && self.front.core.is_none() && self.front.desk.is_none();
        let is_resting = now_ns < self.rests_until_ns && is_alone && self.stack.nic().is_idle();
        if !is_resting || self.is_asked_to_close() {
            return None;
        }
        let deadline_ns = (self.rests_until_ns < u64::MAX).then_some(self.rests_until_ns);
        Some(Progress { worked: 0, deadline_ns })
    }

    /// Looks at a part of the clients if it is time to. Returns when it will be; never, if there are none.
    fn check(&mut self, now_ns: u64) -> Option<u64> {
        let every_ns = self.front.clients.service.look_every_ns().filter(|_| self.stack.flow_count() > 0)?;
        if now_ns >= self.check_ns {
            self.check_ns = now_ns + every_ns / self.front.clients.parts();
            self.front.clients.check(&mut self.stack);
        }
        Some(self.check_ns)
    }
}

impl<N: Nic, C: Clock, S: Service<N::Buffer>> Poller for Server<N, C, S> {
    fn poll(&mut self, now_ns: u64) -> Progress {
        if let Some(progress) = self.rest(now_ns) {
            return progress;
        }
        self.rests_until_ns = 0;
        self.come_back(now_ns);
        self.look(now_ns);
        let window_ns = self.steer_at(now_ns);
        self.follow(now_ns);
        self.front.clients.service.at(now_ns);
        let check_ns = self.check(now_ns);
        self.front.take_mail(&mut self.stack, Instant::from_nanos(now_ns));
        if S::IS_ACTIVE {
            self.front.clients.attend(&mut self.stack);
        }
        self.gate.iter_mut().for_each(Gate::begin);
        let served = self.gate.as_ref().map_or(0, Gate::served);
        let deadline = self.stack.poll_through(Instant::from_nanos(now_ns), &mut self.front, &mut self.gate);
        if let Some(payers) = self.stack.nic().payers() {
            payers.end();
        }
        let reserve_ns = self.look_for_memory(now_ns);
        let tend_ns = self.front.clients.service.tend(now_ns, self.stack.nic());
        let frames = self.stack.counters().frames_received;
        self.close();
        let came = frames.wrapping_sub(core::mem::replace(&mut self.frames, frames));
        // Frames that came before and were served now are work as well.
        let worked = came.max(self.gate.as_ref().map_or(0, Gate::served) - served) as u32;
        self.busy_ns = (worked > 0).then_some(now_ns);
        if worked == 0 && self.can_leave() {
            self.leave(now_ns);
            // The time that passed is not known here.
            return Progress { worked, deadline_ns: Some(now_ns) };
        }
        let due_ns = self.front.clients.service.has_due().then_some(now_ns);
        let deadline_ns = [deadline.map(Instant::nanos), check_ns, window_ns, reserve_ns, tend_ns, due_ns]
            .into_iter()
            .flatten()
            .min();
        if worked == 0 {
            self.rests_until_ns = deadline_ns.unwrap_or(u64::MAX);
        }
        Progress { worked, deadline_ns }
    }

    fn arm(&mut self) -> bool {
        self.stack.nic().arm()
    }

    fn disarm(&mut self) {
        self.stack.nic().disarm();
    }
}
