//! The connections of an active service: they hear what happens, say something when they want to, and some of
//! them it has asked for itself.

use super::{Client, Clients, Measured, send_all};
use nom_net::{Closed, FlowId};
use nom_port::buffer::Buffer;
use nom_port::nic::Nic;
use nom_port::world::Clock;
use nom_service::{Class, ClientId, Course, Happening, Reaction, Service, StreamEnd};

/// How the service is told that a flow has ended.
fn end(why: Closed) -> StreamEnd {
    match why {
        Closed::Finished => StreamEnd::Finished,
        Closed::Reset => StreamEnd::Reset,
        Closed::Refused => StreamEnd::Refused,
        Closed::TimedOut => StreamEnd::TimedOut,
        Closed::Unreachable => StreamEnd::Unreachable,
    }
}

impl<B: Buffer, S: Service<B>> Clients<B, S> {
    /// Does what the service wants though nothing came.
    pub fn attend<N: Nic<Buffer = B>, C: Clock>(&mut self, stack: &mut Measured<N, C>) {
        while let Some(wanted) = self.service.next_wanted() {
            match stack.connect(wanted.remote) {
                Ok(flow) => {
                    let client = Client::new(flow, wanted.connection, Class::OTHERS);
                    self.take_in(flow, Client { is_own: true, ..client });
                }
                Err(_) => self.service.ended(wanted.connection, StreamEnd::Unreachable),
            }
        }
        while let Some(id) = self.service.next_due() {
            self.go_on(stack, id);
        }
    }

    /// Lets a connection say what it has to say, unless it has yet to get rid of what it said before.
    fn go_on<N: Nic<Buffer = B>, C: Clock>(&mut self, stack: &mut Measured<N, C>, id: ClientId) {
        let index = id.number() as u32 as usize;
        let Some(Some(client)) = self.clients.get(index) else { return };
        if client.flow.number() == id.number() && !client.has_unsent() {
            self.happen(stack, client.flow, Happening::Due);
        }
    }

    /// A connection that somebody asked for is open.
    pub(super) fn welcome<N: Nic<Buffer = B>, C: Clock>(&mut self, stack: &mut Measured<N, C>, flow: FlowId) {
        self.happen(stack, flow, Happening::Opened(ClientId::new(flow.number())));
    }

    /// Tells the service what happened to a connection, and does what it says.
    pub(super) fn happen<N: Nic<Buffer = B>, C: Clock>(
        &mut self,
        stack: &mut Measured<N, C>,
        flow: FlowId,
        what: Happening<B>,
    ) {
        let Some(Some(client)) = self.clients.get_mut(flow.index()) else { return };
        if client.flow != flow || client.is_closing {
            return;
        }
        self.reply.begin(client.class);
        let said = self.service.happened(&mut client.connection, what, &mut self.reply);
        let (requests, len) = (self.reply.take_requests(), self.reply.len());
        let is_answer = len > 0 && said.asked_ns.is_some() && !client.is_own;
        if let Some(activity) = self.reply.end(if is_answer { requests } else { 0 }, len) {
            client.tell(stack, activity);
            self.accounts.iter_mut().for_each(|accounts| accounts.charge(flow.index(), activity));
        }
        if let (Some(asked_ns), true) = (said.asked_ns, is_answer) {
            // Behind what still waits for room in the stack.
            stack.note_answer(flow, asked_ns, requests, client.unsent_len() + len);
        }
        self.carry_out(stack, flow, (said, is_answer));
    }

    /// Sends what the service has written, and does with the stream what it says.
    fn carry_out<N: Nic<Buffer = B>, C: Clock>(
        &mut self,
        stack: &mut Measured<N, C>,
        flow: FlowId,
        (said, is_answer): (Reaction, bool),
    ) {
        let Some(Some(client)) = self.clients.get_mut(flow.index()) else { return };
        let bytes = self.reply.len();
        if bytes > 0 && self.reply.take(stack.nic(), &mut self.slices).is_none() {
            return self.end(stack, flow, StreamEnd::NoMemory);
        }
        if S::IS_TIMED && !client.is_own {
            stack.nic().answer(bytes);
        }
        // Nearly always the stack has room: nothing need wait in a queue of its own.
        if client.has_unsent() || !send_all(stack, flow, &mut self.slices) {
            client.queue(&mut self.slices, self.reply.lent(), bytes);
        }
        // Who is one too many is answered once more.
        let is_too_many = is_answer && self.excess > 0;
        client.is_closing = said.course == Course::Close || is_too_many;
        client.is_finished |= said.course == Course::Finish;
        self.excess = self.excess.saturating_sub(u32::from(client.is_closing && !client.is_own));
        if core::mem::replace(&mut client.unread, said.unread) != said.unread {
            stack.hold(flow, said.unread);
        }
        if said.course == Course::Reset {
            return self.end(stack, flow, StreamEnd::Reset);
        }
        self.send_on(stack, flow);
    }

    /// Ends a connection at once, by a reset.
    pub(super) fn end<N: Nic<Buffer = B>, C: Clock>(
        &mut self,
        stack: &mut Measured<N, C>,
        flow: FlowId,
        end: StreamEnd,
    ) {
        self.slices.clear();
        if let Some(client) = self.take_out(flow) {
            self.service.ended(client.connection, end);
        }
        stack.abort(flow);
    }

    /// Sends what there is room for, and then closes what is to be closed. Returns whether more may be said.
    fn send_on<N: Nic<Buffer = B>, C: Clock>(&mut self, stack: &mut Measured<N, C>, flow: FlowId) -> bool {
        let Some(client) = self.client(flow) else { return false };
        if !client.drain(stack) {
            if client.is_closing {
                stack.limit_patience(flow);
            }
            return false;
        }
        if client.is_closing {
            stack.close(flow);
        } else if client.is_finished {
            stack.shut_down(flow);
        }
        !client.is_closing
    }

    /// A flow has room again.
    pub(super) fn room_came<N: Nic<Buffer = B>, C: Clock>(
        &mut self,
        stack: &mut Measured<N, C>,
        flow: FlowId,
    ) {
        if self.send_on(stack, flow) {
            self.happen(stack, flow, Happening::Due);
        }
    }

    /// A flow is over.
    pub(super) fn lose(&mut self, flow: FlowId, why: Closed) {
        if let Some(client) = self.take_out(flow) {
            self.service.ended(client.connection, end(why));
        }
    }

    /// The server is to end: clients are taken to have said all they will say, and get what they asked for.
    pub(super) fn hear_no_more<N: Nic<Buffer = B>, C: Clock>(&mut self, stack: &mut Measured<N, C>) {
        for index in 0..self.clients.len() {
            if let Some(Some(client)) = self.clients.get(index)
                && !client.is_own
            {
                self.happen(stack, client.flow, Happening::Finished);
            }
        }
    }
}
