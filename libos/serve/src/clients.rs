//! The clients of one stack: between its flows and the service.

mod active;
mod memory;

use crate::metered::Metered;
use crate::payers::{Payers, label, said, settled};
use crate::reserve::Reserve;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::ops::Range;
use memory::Accounts;
use nom_net::{Application, Closed, Detached, FlowId, FourTuple, Noted, Observed as _, Stack};
use nom_port::buffer::{Buffer, Chain, Slice};
use nom_port::nic::{Label, Nic, Received, gather};
use nom_port::world::Clock;
use nom_service::{Activity, Class, Happening, Reply, Service, Stream};

/// Places for clients that are not given back.
const LASTING: usize = 1024;

/// A stack whose queue pair is measured.
pub(crate) type Measured<N, C> = Stack<Metered<N, C>>;

/// A flow on its way from one core to another, with everything that its core knows of it.
pub struct Migration<B, C> {
    pub(crate) flow: Detached<B>,
    pub(crate) guest: Guest<B, C>,
    /// Cores that it may still be offered to.
    pub(crate) left: usize,
}

/// Whose a flow is.
pub(crate) enum Guest<B, C> {
    /// Nobody's: its handshake is not over, or it only waits for strays.
    Nobody,
    /// A client of the service.
    Service(Client<B, C>),
    /// A client of the control port, with the bytes of a request that has not come whole.
    Desk(Client<B, Vec<u8>>),
}

/// What waits for a client to read what it was answered.
struct Backlog<B> {
    /// Answers that the stack had no room for.
    unsent: VecDeque<Slice<B>>,
    /// Bytes of all that were put there so far, and where among these those lie that are only lent.
    written: u64,
    lent: VecDeque<Range<u64>>,
    /// Pieces that wait until those are sent, each with when it arrived.
    waiting: VecDeque<(u64, Slice<B>)>,
}

impl<B: Buffer> Backlog<B> {
    /// Nothing yet.
    fn new() -> Backlog<B> {
        Backlog { unsent: VecDeque::new(), written: 0, lent: VecDeque::new(), waiting: VecDeque::new() }
    }

    /// The last slices of an answer, of which `lent` says where it is lent, among its `len` bytes.
    fn queue(&mut self, slices: &mut VecDeque<Slice<B>>, lent: &[Range<usize>], len: usize) {
        let left: usize = slices.iter().map(Slice::len).sum();
        let gone = len.saturating_sub(left);
        let place = |at: usize| self.written + at.saturating_sub(gone) as u64;
        let lent = lent.iter().filter(|lent| lent.end > gone).map(|lent| place(lent.start)..place(lent.end));
        self.lent.extend(lent);
        self.written += left as u64;
        self.unsent.append(slices);
        let front = self.written - self.unsent_len() as u64;
        while self.lent.pop_front_if(|lent| lent.end <= front).is_some() {}
    }

    /// Bytes of answers that wait.
    fn unsent_len(&self) -> usize {
        self.unsent.iter().map(Slice::len).sum()
    }

    /// The same without those that are lent: they take memory that nobody else has a use for.
    fn owned_len(&self) -> usize {
        let unsent = self.unsent_len();
        let front = self.written - unsent as u64;
        let lent: u64 = self.lent.iter().map(|lent| lent.end.saturating_sub(lent.start.max(front))).sum();
        unsent - lent as usize
    }
}

/// A client's stream.
pub(crate) struct Client<B, C> {
    flow: FlowId,
    connection: C,
    /// What waits; nearly always nothing does.
    backlog: Option<Box<Backlog<B>>>,
    /// Whether its peer was told to send no more.
    is_stopped: bool,
    /// Whether its peer will send no more, though not all was answered.
    is_finished: bool,
    is_closing: bool,
    /// Whether the service asked for the connection: it is nobody's who wants to be served.
    is_own: bool,
    /// Bytes that an active service has yet to take, as the stack knows.
    unread: u32,
    /// Bytes that it had yet to take when it was last looked at, modulo 2^32.
    left: u32,
    /// Whose it is.
    class: Class,
    /// What the stack was told of whom its requests are for; nothing until one has said.
    told: Label,
}

impl<B: Buffer, C> Client<B, C> {
    fn new(flow: FlowId, connection: C, class: Class) -> Client<B, C> {
        Client {
            class,
            flow,
            connection,
            backlog: None,
            is_stopped: false,
            is_finished: false,
            is_closing: false,
            is_own: false,
            unread: 0,
            left: 0,
            told: Label::default(),
        }
    }

    /// Its last request was for this activity: the stack is told, unless it knows.
    #[inline]
    fn tell<N: Nic<Buffer = B>, K: Clock>(&mut self, stack: &mut Measured<N, K>, activity: Activity) {
        self.told = match said(self.told) {
            Some(last) if last == activity => return,
            Some(_) => label(activity, true),
            None => settled(activity),
        };
        stack.set_label(self.flow, self.told);
    }

    /// Whether it has taken something of what it was answered since the last look; `queued` bytes are the
    /// stack's.
    fn has_progressed(&mut self, queued: usize) -> bool {
        let left = (queued + self.unsent_len()) as u32;
        core::mem::replace(&mut self.left, left) != left
    }

    /// Whether answers wait for the stack to have room.
    #[inline]
    fn has_unsent(&self) -> bool {
        self.backlog.as_ref().is_some_and(|backlog| !backlog.unsent.is_empty())
    }

    /// Bytes of those answers.
    fn unsent_len(&self) -> usize {
        self.backlog.as_ref().map_or(0, |backlog| backlog.unsent_len())
    }

    fn backlog(&mut self) -> &mut Backlog<B> {
        self.backlog.get_or_insert_with(|| Box::new(Backlog::new()))
    }

    /// Has the last slices of an answer of `len` bytes wait behind those that do.
    #[cold]
    fn queue(&mut self, slices: &mut VecDeque<Slice<B>>, lent: &[Range<usize>], len: usize) {
        self.backlog().queue(slices, lent, len);
    }

    /// Bytes of memory that its answers keep which wait.
    fn owned_len(&self) -> usize {
        self.backlog.as_ref().map_or(0, |backlog| backlog.owned_len())
    }

    /// Hands the stack what waits, as far as it has room; whether that was all of it.
    fn drain<N: Nic<Buffer = B>, K: Clock>(&mut self, stack: &mut Measured<N, K>) -> bool {
        let Some(backlog) = &mut self.backlog else { return true };
        let is_all = send_all(stack, self.flow, &mut backlog.unsent);
        if is_all && backlog.waiting.is_empty() {
            self.backlog = None;
        }
        is_all
    }

    /// Bytes of memory that its pieces keep which wait.
    fn waiting_len(&self) -> usize {
        let waiting = self.backlog.iter().flat_map(|backlog| &backlog.waiting);
        waiting.map(|(_, slice)| slice.pinned()).sum()
    }

    /// The next piece that waits.
    fn next_piece(&mut self) -> Option<(u64, Slice<B>)> {
        let backlog = self.backlog.as_mut()?;
        let piece = backlog.waiting.pop_front();
        if backlog.waiting.is_empty() && backlog.unsent.is_empty() {
            self.backlog = None;
        }
        piece
    }
}

/// Clients that are looked at in a row.
const LOOKED_AT_MAX: usize = 256;

/// Clients of one stack, by flow, with the service that they are clients of.
pub(crate) struct Clients<B: Buffer, S: Service<B>> {
    pub service: S,
    /// By the flow's index.
    clients: Vec<Option<Client<B, S::Connection>>>,
    reply: Reply<B>,
    /// Kept for its memory.
    slices: VecDeque<Slice<B>>,
    /// The first of those that are looked at next.
    looked_at: usize,
    /// Clients with a connection, and how many there may be.
    open: u32,
    limit: Option<u32>,
    /// Whether memory is used up: nobody else is let in.
    is_short: bool,
    /// How many are to be closed once they are answered.
    excess: u32,
    /// If activities are told apart.
    payers: Option<Rc<Payers>>,
    /// How many clients each may have, by the activities' numbers; who is not there, as many as there are.
    most: Vec<Option<u32>>,
    /// If somebody may not hold all the memory that he likes.
    accounts: Option<Accounts>,
}

impl<B: Buffer, S: Service<B>> Clients<B, S> {
    /// No clients yet.
    pub fn new(service: S) -> Clients<B, S> {
        let (clients, reply, slices) = (Vec::new(), Reply::default(), VecDeque::new());
        Clients {
            service,
            clients,
            reply,
            slices,
            looked_at: 0,
            open: 0,
            limit: None,
            is_short: false,
            excess: 0,
            payers: None,
            most: Vec::new(),
            accounts: None,
        }
    }

    /// Tells activities apart from now on.
    pub fn charge_to(&mut self, payers: Rc<Payers>) {
        self.reply.attribute(payers.rules().clone(), payers.clone());
        self.payers = Some(payers);
    }

    /// Whose the clients are that connect from one address to a port of ours.
    pub fn class(&self, tuple: &FourTuple) -> Class {
        let of = |payers: &Rc<Payers>| payers.rules().of_connection(tuple.local.port(), tuple.remote.ip());
        self.payers.as_ref().map_or(Class::OTHERS, of)
    }

    /// A client came, or went.
    fn count(&self, class: Class, change: i64) {
        if let Some(payers) = &self.payers {
            payers.connected(class.base(), change);
        }
    }

    /// Lets each activity have so many clients, by its number, or as many as there are. Those that are there
    /// stay.
    pub fn set_most(&mut self, most: Vec<Option<u32>>) {
        self.most = most;
    }

    /// Whether another client of this class may come.
    fn admits(&self, class: Class) -> bool {
        let most = self.most.get(class.base().0 as usize).copied().flatten();
        let Some((most, payers)) = most.zip(self.payers.as_ref()) else { return true };
        payers.connections(class.base()) < u64::from(most)
    }

    /// How many clients have a connection.
    pub fn open(&self) -> u32 {
        self.open
    }

    /// Lets so many clients stay, or all.
    pub fn set_limit(&mut self, limit: Option<u32>) {
        self.limit = limit;
        self.excess = limit.map_or(0, |limit| self.open.saturating_sub(limit));
    }

    /// Lets nobody in while `reserve` has nothing left.
    #[inline]
    pub fn go_by(&mut self, reserve: &Reserve) {
        self.is_short = reserve.is_used_up();
    }

    fn client(&mut self, flow: FlowId) -> Option<&mut Client<B, S::Connection>> {
        let client = self.clients.get_mut(flow.index())?.as_mut()?;
        (client.flow == flow).then_some(client)
    }

    /// Whether a flow is one of theirs.
    pub fn has(&self, flow: FlowId) -> bool {
        self.clients
            .get(flow.index())
            .is_some_and(|client| client.as_ref().is_some_and(|client| client.flow == flow))
    }

    fn remove(&mut self, flow: FlowId) {
        if let Some(client) = self.take_out(flow) {
            self.turn_away(client);
        }
    }

    /// Takes a client out that goes to another core: nothing is said of it to the service, which both share.
    pub fn take_out(&mut self, flow: FlowId) -> Option<Client<B, S::Connection>> {
        self.client(flow)?;
        let client = self.clients[flow.index()].take()?;
        self.forget_memory(flow);
        if !client.is_own {
            self.open -= 1;
            self.count(client.class, -1);
            self.excess = self.excess.saturating_sub(u32::from(!client.is_closing));
        }
        if self.clients.len() > LASTING {
            self.trim();
        }
        Some(client)
    }

    /// Gives the memory of a crowd back that has gone.
    #[cold]
    fn trim(&mut self) {
        while self.clients.pop_if(|client| client.is_none()).is_some() {}
        if self.clients.len() < self.clients.capacity() / 4 {
            self.clients.shrink_to(self.clients.len() * 2);
        }
    }

    /// Takes a client in that came from another core, and whose flow has a new name.
    pub fn take_in(&mut self, flow: FlowId, client: Client<B, S::Connection>) {
        if self.clients.len() <= flow.index() {
            self.clients.resize_with(flow.index() + 1, || None);
        }
        let is_own = client.is_own;
        self.count(client.class, i64::from(!is_own));
        let before = self.clients[flow.index()].replace(Client { flow, ..client });
        self.open += u32::from(before.is_none() && !is_own);
        if let Some(before) = before {
            self.count(before.class, -1);
        }
    }

    /// Has no place for a client.
    pub fn turn_away(&mut self, client: Client<B, S::Connection>) {
        self.service.disconnected(client.connection);
    }

    /// In how many parts all clients are looked at: a crowd of them would keep the core from everybody else.
    pub fn parts(&self) -> u64 {
        self.clients.len().div_ceil(LOOKED_AT_MAX).max(1) as u64
    }

    /// Looks at the clients of the next part.
    pub fn check<N: Nic<Buffer = B>, C: Clock>(&mut self, stack: &mut Measured<N, C>) {
        let first = if self.looked_at < self.clients.len() { self.looked_at } else { 0 };
        self.looked_at = first + LOOKED_AT_MAX;
        for index in first..self.looked_at.min(self.clients.len()) {
            let Some(client) = &mut self.clients[index] else { continue };
            let flow = client.flow;
            if client.has_progressed(stack.queued(flow)) {
                self.service.progressed(&mut client.connection);
            }
            if client.is_closing {
                continue;
            }
            self.reply.begin(client.class);
            client.is_closing = self.service.check(&mut client.connection, &mut self.reply) == Stream::Close;
            if !client.is_closing && !client.has_unsent() {
                self.service.news(&mut client.connection, &mut self.reply);
            }
            // What it is told now nobody else may hear.
            if client.is_closing || !self.reply.is_empty() {
                self.answer(stack, flow);
            }
        }
    }

    /// Closes every client's stream behind what it asked for. Whoever has yet to take answers is closed when
    /// he has, or takes nothing of them for too long.
    pub fn close_all<N: Nic<Buffer = B>, C: Clock>(&mut self, stack: &mut Measured<N, C>) {
        if S::IS_ACTIVE {
            return self.hear_no_more(stack);
        }
        for client in self.clients.iter_mut().flatten() {
            if client.is_stopped {
                client.is_finished = true;
                stack.limit_patience(client.flow);
            } else if !client.is_closing {
                client.is_closing = true;
                stack.close(client.flow);
            }
        }
    }

    /// Turns a client away behind what the service has to tell it; without a word when places are short,
    /// since whoever is told something may take a minute to go.
    fn see_off<N: Nic<Buffer = B>, C: Clock>(&mut self, stack: &mut Measured<N, C>, flow: FlowId) {
        let has_place = stack.flow_count() <= stack.config().flows_share.min(stack.config().flows_max) / 2;
        let is_taken = self.reply.take(stack.nic(), &mut self.slices).is_some() && !self.slices.is_empty();
        if is_taken && has_place && send_all(stack, flow, &mut self.slices) {
            stack.close(flow);
        } else {
            self.slices.clear();
            stack.abort(flow);
        }
    }

    /// Gives a piece that arrived at a time to the service and sends what it answers. Returns as
    /// [`Clients::send`].
    #[inline]
    fn handle<N: Nic<Buffer = B>, C: Clock>(
        &mut self,
        stack: &mut Measured<N, C>,
        flow: FlowId,
        (arrived_ns, bytes): (u64, Slice<B>),
    ) -> bool {
        let Some(Some(client)) = self.clients.get_mut(flow.index()) else { return false };
        if client.flow != flow || client.is_closing {
            return false;
        }
        self.reply.begin(client.class);
        let is_over = self.service.received(&mut client.connection, bytes, &mut self.reply) == Stream::Close;
        let is_too_many = self.excess > 0 && !self.reply.is_empty();
        if is_over || is_too_many {
            client.is_closing = true;
            self.excess = self.excess.saturating_sub(1);
        }
        let requests = self.reply.take_requests();
        let len = self.reply.len();
        if let Some(activity) = self.reply.end(if len > 0 { requests } else { 0 }, len) {
            client.tell(stack, activity);
            self.accounts.iter_mut().for_each(|accounts| accounts.charge(flow.index(), activity));
        }
        // Nobody hears of an answer where nobody measures.
        let is_noted = S::IS_TIMED && len > 0 && stack.nic().is_measuring();
        let noted = is_noted.then_some(Noted { arrived_ns, requests, len });
        // Nearly always the stack has room: nothing need wait in a queue of its own.
        if !client.is_closing && !client.has_unsent() {
            if let Some(whole) = self.reply.take_whole(stack.nic()) {
                if S::IS_TIMED {
                    stack.nic().answer(len);
                }
                let Err(whole) = stack.send_answer(flow, noted, whole) else { return true };
                client.queue(&mut VecDeque::from([whole]), &[], len);
                return self.send(stack, flow);
            }
            if self.reply.take(stack.nic(), &mut self.slices).is_none() {
                return self.give_up(stack, flow);
            }
            if S::IS_TIMED {
                stack.nic().answer(len);
            }
            if stack.send_all(flow, noted, &mut self.slices).is_ok() {
                return true;
            }
            client.queue(&mut self.slices, self.reply.lent(), len);
            return self.send(stack, flow);
        }
        if let Some(Noted { arrived_ns, requests, len }) = noted {
            // Behind what still waits for room in the stack.
            stack.note_answer(flow, arrived_ns, requests, client.unsent_len() + len);
        }
        self.answer(stack, flow)
    }

    /// No memory for an answer: the client must not take a part of it for the whole.
    fn give_up<N: Nic<Buffer = B>, C: Clock>(&mut self, stack: &mut Measured<N, C>, flow: FlowId) -> bool {
        self.slices.clear();
        self.remove(flow);
        stack.abort(flow);
        false
    }

    /// Sends what the service wrote. Returns as [`Clients::send`].
    fn answer<N: Nic<Buffer = B>, C: Clock>(&mut self, stack: &mut Measured<N, C>, flow: FlowId) -> bool {
        let Some(Some(client)) = self.clients.get_mut(flow.index()) else { return false };
        let bytes = self.reply.len();
        if !self.reply.is_empty() && self.reply.take(stack.nic(), &mut self.slices).is_none() {
            return self.give_up(stack, flow);
        }
        if S::IS_TIMED {
            stack.nic().answer(bytes);
        }
        // Nearly always the stack has room: nothing need wait in a queue of its own.
        if client.has_unsent() || !send_all(stack, flow, &mut self.slices) {
            client.queue(&mut self.slices, self.reply.lent(), bytes);
        }
        self.send(stack, flow)
    }

    /// Sends what was answered, as far as there is room, and closes a stream that is to be closed. Returns
    /// whether the stream goes on now.
    fn send<N: Nic<Buffer = B>, C: Clock>(&mut self, stack: &mut Measured<N, C>, flow: FlowId) -> bool {
        let Some(client) = self.client(flow) else { return false };
        if !client.drain(stack) {
            // Who does not read what he asked for is asked to ask no more.
            client.is_stopped = true;
            stack.window(flow, 0);
            if client.is_closing {
                stack.limit_patience(flow);
            }
            return false;
        }
        if client.is_closing {
            stack.close(flow);
        }
        !client.is_closing
    }

    /// Lets a client that was stopped go on: all its pieces are handled.
    fn resume<N: Nic<Buffer = B>, C: Clock>(&mut self, stack: &mut Measured<N, C>, flow: FlowId) {
        let Some(client) = self.client(flow) else { return };
        if client.is_finished {
            stack.close(flow);
        } else if core::mem::take(&mut client.is_stopped) {
            stack.window(flow, u32::MAX);
        }
    }
}

/// Hands slices to the stack until it has no more room; whether it took all.
fn send_all<N: Nic, C: Clock>(
    stack: &mut Measured<N, C>,
    flow: FlowId,
    slices: &mut VecDeque<Slice<N::Buffer>>,
) -> bool {
    stack.send_all(flow, None, slices).is_ok()
}

impl<N: Nic, C: Clock, S: Service<N::Buffer>> Application<Metered<N, C>> for Clients<N::Buffer, S> {
    fn filter(
        &mut self,
        stack: &mut Measured<N, C>,
        frame: Received<N::Buffer>,
    ) -> Option<Received<N::Buffer>> {
        let port = self.service.packet_port().filter(|_| self.limit != Some(0));
        let Some(port) = port else { return Some(frame) };
        let mut bytes = 0;
        let left = stack.answer_in_place(frame, port, |datagram, room| {
            self.service.packet(datagram, room).inspect(|len| bytes = *len)
        });
        stack.nic().answer(if left.is_none() { bytes } else { 0 });
        left
    }

    fn connected(&mut self, stack: &mut Measured<N, C>, flow: FlowId) {
        let arrived_ns = stack.arrived_ns();
        stack.nic().arrived(flow.index() as u32, arrived_ns);
        if S::IS_ACTIVE && self.has(flow) {
            return self.welcome(stack, flow);
        }
        let has_room = !self.is_short && self.limit.is_none_or(|limit| self.open < limit);
        if self.is_short {
            self.service.refused();
        }
        let addresses = stack.addresses(flow).filter(|_| has_room);
        let Some((connection, class)) = addresses.and_then(|addresses| {
            let class = self.class(addresses);
            self.reply.begin(class);
            let connection = if self.admits(class) && self.has_memory(stack, class.base()) {
                self.service.connected(addresses.remote, &mut self.reply)
            } else {
                None
            };
            Some((connection?, class))
        }) else {
            return self.see_off(stack, flow);
        };
        self.take_in(flow, Client::new(flow, connection, class));
        self.count_memory(stack, flow);
        if S::IS_ACTIVE {
            return self.welcome(stack, flow);
        }
        self.answer(stack, flow);
    }

    #[inline]
    fn received(&mut self, stack: &mut Measured<N, C>, flow: FlowId, bytes: Slice<N::Buffer>) {
        let arrived_ns = stack.arrived_ns();
        stack.nic().arrived(flow.index() as u32, arrived_ns);
        if !self.may_ask(stack, flow) {
            return self.refuse(stack, flow);
        }
        if S::IS_ACTIVE {
            self.happen(stack, flow, Happening::Came(arrived_ns, bytes));
            return self.count_memory(stack, flow);
        }
        match self.clients.get_mut(flow.index()) {
            Some(Some(client)) if client.is_stopped && client.flow == flow => {
                client.backlog().waiting.push_back((arrived_ns, bytes));
            }
            _ => _ = self.handle(stack, flow, (arrived_ns, bytes)),
        }
        self.count_memory(stack, flow);
    }

    fn kept(&mut self, stack: &mut Measured<N, C>, flow: FlowId) {
        self.count_memory(stack, flow);
        if !self.may_ask(stack, flow) {
            self.refuse(stack, flow);
        }
    }

    fn sendable(&mut self, stack: &mut Measured<N, C>, flow: FlowId) {
        if S::IS_ACTIVE {
            self.room_came(stack, flow);
            return self.count_memory(stack, flow);
        }
        let mut goes_on = self.send(stack, flow);
        while goes_on {
            let piece = self.client(flow).and_then(Client::next_piece);
            let Some(piece) = piece else {
                self.resume(stack, flow);
                break;
            };
            goes_on = self.handle(stack, flow, piece);
        }
        self.count_memory(stack, flow);
    }

    /// The client says no more, but wants to hear what it asked for.
    fn finished(&mut self, stack: &mut Measured<N, C>, flow: FlowId) {
        if S::IS_ACTIVE {
            return self.happen(stack, flow, Happening::Finished);
        }
        match self.client(flow) {
            Some(client) if client.is_stopped => client.is_finished = true,
            _ => stack.close(flow),
        }
    }

    fn closed(&mut self, _: &mut Measured<N, C>, flow: FlowId, why: Closed) {
        if S::IS_ACTIVE {
            return self.lose(flow, why);
        }
        self.remove(flow);
    }

    fn datagram(
        &mut self,
        stack: &mut Measured<N, C>,
        to: SocketAddr,
        from: SocketAddr,
        bytes: Chain<N::Buffer>,
    ) {
        if self.limit == Some(0) {
            return;
        }
        let Some(bytes) = whole(stack, bytes) else { return };
        let class = self.class(&FourTuple { local: to, remote: from });
        stack.nic().attribute(label(class.base(), class.is_by_request()));
        self.reply.begin(class);
        self.service.datagram(bytes, &mut self.reply);
        let len = self.reply.len();
        self.reply.end(u32::from(len > 0), len);
        let taken = self.reply.take(stack.nic(), &mut self.slices);
        for (head, len) in self.reply.datagrams().filter(|_| taken.is_some()) {
            let payload = split(&mut self.slices, len);
            // A datagram that cannot be sent is lost, as datagrams are; the stack counts why.
            if stack.answer_datagram(to, from, head, payload).is_ok() {
                stack.nic().answer(head.len() + len);
            }
        }
        self.reply.clear_datagrams();
        self.slices.clear();
    }
}

/// A datagram in one piece: copied, if it filled several buffers; `None` if there is no memory for that.
fn whole<N: Nic>(stack: &mut Stack<N>, mut bytes: Chain<N::Buffer>) -> Option<Slice<N::Buffer>> {
    if bytes.len() == 1 { bytes.pop() } else { stack.buffer(&gather(&bytes)) }
}

/// Takes the first `len` bytes of `slices`.
fn split<B: Buffer>(slices: &mut VecDeque<Slice<B>>, mut len: usize) -> Chain<B> {
    let mut chain = Chain::new();
    while len > 0
        && let Some(slice) = slices.front_mut()
    {
        let part = slice.part(0..len);
        slice.advance(part.len());
        if slice.is_empty() {
            slices.pop_front();
        }
        len -= part.len();
        chain.push(part);
    }
    chain
}
