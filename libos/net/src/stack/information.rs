//! What is known of a connection, for who asks (`TCP_INFO` in tcp(7)).

use super::Stack;
use super::flows::Flow;
use crate::table::FlowId;
use crate::tcp::connection::State;
use core::time::Duration;
use nom_port::nic::Nic;

/// What the stack knows of a connection now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowInformation {
    /// Its state.
    pub state: State,
    /// The smoothed round-trip time and its variation, once one was measured.
    pub round_trip: Option<(Duration, Duration)>,
    /// How long an acknowledgement is waited for.
    pub timeout: Duration,
    /// Most bytes of a segment.
    pub mss: u32,
    /// The longest that came.
    pub received_mss: u32,
    /// Bytes that may be in flight.
    pub congestion_window: u32,
    /// Below it the window grows by what is acknowledged; nothing while nothing is known of the path.
    pub threshold: Option<u32>,
    /// Bytes that were sent and are not acknowledged.
    pub unacknowledged: u32,
    /// Of these, bytes that arrived out of order.
    pub arrived: u32,
    /// Of these, bytes that have to be sent again.
    pub lost: u32,
    /// Bytes that were not sent yet.
    pub unsent: u32,
    /// How often the timeout has expired since something was acknowledged.
    pub retries: u32,
    /// Bytes that the peer may send.
    pub receive_window: u32,
    /// Since something was sent.
    pub idle: Duration,
    /// Since something came.
    pub unheard: Duration,
    /// Whether segments have timestamps.
    pub has_timestamps: bool,
    /// Whether acknowledgements are selective.
    pub is_selective: bool,
    /// Shifts of the windows, the peer's and ours, if they are scaled.
    pub scales: Option<(u8, u8)>,
}

impl<N: Nic> Stack<N> {
    /// What is known of an open flow.
    pub fn information(&self, flow: FlowId) -> Option<FlowInformation> {
        let Some((_, Flow::Open(open))) = self.flows.get(flow) else { return None };
        let connection = &open.connection;
        let (send, receive, flight) = (&connection.send, &connection.receive, &connection.recovery.flight);
        let unacknowledged = send.max.since(send.una);
        Some(FlowInformation {
            state: connection.state,
            round_trip: connection.rtt.estimate(),
            timeout: connection.rtt.timeout(),
            mss: send.mss,
            received_mss: receive.longest,
            congestion_window: connection.cubic.window(),
            threshold: connection.cubic.threshold(),
            unacknowledged,
            arrived: flight.arrived(),
            lost: flight.lost(),
            unsent: (send.queue.len() as u32).saturating_sub(unacknowledged),
            retries: connection.retries,
            receive_window: receive.window,
            idle: self.now - connection.sent_at,
            unheard: self.now - connection.heard_at,
            has_timestamps: connection.stamps.is_some(),
            is_selective: connection.is_sack,
            scales: connection.is_scaled.then_some((send.scale, receive.scale)),
        })
    }
}
