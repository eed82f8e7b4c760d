//! The four transaction state machines, without bytes, sockets or clock.
//!
//! Each processes an input and returns a [`Step`]: the message to send, whether to notify the transaction user, and the
//! deadline to set. Names of states and timers are the RFC's. A transaction has at most one repeating timer (A, E or G)
//! and one that ends its present state (B, D, F, H, I, J, K, L, M), so a step contains just these two.

use ringway_sansio::Duration;

/// The protocol's base timers (RFC 3261 section 17.1.1.1 and table 4), from which all others follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timers {
    /// Estimate of the round-trip time; 500 ms unless configured.
    pub t1: Duration,
    /// Longest retransmission interval of non-INVITE requests and INVITE responses; 4 s.
    pub t2: Duration,
    /// Longest time a message stays in the network; 5 s.
    pub t4: Duration,
}

impl Default for Timers {
    fn default() -> Self {
        Timers {
            t1: Duration::from_millis(500),
            t2: Duration::from_secs(4),
            t4: Duration::from_secs(5),
        }
    }
}

impl Timers {
    /// Returns 64*T1: the lifetime of a transaction (timers B, F, H, J, L and M).
    pub fn lifetime(&self) -> Duration {
        self.t1 * 64
    }

    /// Returns the time in which timer E grows to T2. Until then a request other than INVITE gets a final response or
    /// none, afterwards a 100 (RFC 4320 section 4.1).
    pub fn trying(&self) -> Duration {
        let (mut interval, mut sum) = (self.t1, self.t1);
        while !interval.is_zero() && interval * 2 < self.t2 {
            interval *= 2;
            sum += interval;
        }
        sum
    }

    /// Returns how long a server transaction of INVITE may be without a response (RFC 3261 section 17.2.1).
    pub const fn trying_invite() -> Duration {
        Duration::from_millis(200)
    }

    /// Returns timer D: at least 32 s over an unreliable transport (RFC 3261 table 4).
    fn d(&self) -> Duration {
        self.lifetime().max(Duration::from_secs(32))
    }
}

/// The pair of state machines of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// RFC 3261 sections 17.1.1 and 17.2.1, with RFC 6026.
    Invite,
    /// RFC 3261 sections 17.1.2 and 17.2.2.
    NonInvite,
}

/// States of both server machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerState {
    /// Non-INVITE, nothing sent yet.
    Trying,
    /// A provisional response has been sent (INVITE: or will be).
    Proceeding,
    /// A final response has been sent (INVITE: 300-699, waiting for the ACK).
    Completed,
    /// INVITE: the ACK has come; late ones are absorbed.
    Confirmed,
    /// INVITE: a 2xx has been sent (RFC 6026 section 7.1).
    Accepted,
    /// Ended; to be dropped.
    Terminated,
}

/// States of both client machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientState {
    /// INVITE sent, no response yet.
    Calling,
    /// Non-INVITE sent, no response yet.
    Trying,
    /// A provisional response has come.
    Proceeding,
    /// A final response has come (INVITE: 300-699).
    Completed,
    /// INVITE: a 2xx has come; more may follow (RFC 6026 section 7.2).
    Accepted,
    /// Ended; to be dropped.
    Terminated,
}

/// The message to send because of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Transmit {
    /// Nothing.
    #[default]
    Nothing,
    /// The response or request passed with the input.
    Given,
    /// The last message sent, again.
    Last,
    /// An ACK for the final response (client INVITE; RFC 3261 section 17.1.1.3).
    Ack,
}

/// The change of the deadline that ends a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Deadline {
    /// Unchanged.
    #[default]
    Keep,
    /// None.
    Clear,
    /// This time from now.
    After(Duration),
    /// At least this time from now, and perhaps a little more: no peer waits for it, it only ends the absorption of
    /// late messages. The caller may let many end together.
    Linger(Duration),
}

/// The result of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Step {
    /// What to send.
    pub transmit: Transmit,
    /// Whether the input (a request, a response or the time-out) is passed to the transaction user.
    pub pass: bool,
    /// The repeating timer: `None` for no change, `Some(zero)` to stop it, else its next interval.
    pub repeat: Option<Duration>,
    /// The timer that ends the state.
    pub deadline: Deadline,
}

impl Step {
    const STOP: Option<Duration> = Some(Duration::ZERO);
}

/// A server transaction.
#[derive(Clone, Copy, Debug)]
pub struct Server {
    kind: Kind,
    state: ServerState,
    reliable: bool,
    interval: Duration,
}

impl Server {
    /// Returns a server transaction for a new request. `reliable` is the transport's.
    pub fn new(kind: Kind, reliable: bool) -> Self {
        let state = match kind {
            Kind::Invite => ServerState::Proceeding,
            Kind::NonInvite => ServerState::Trying,
        };
        Server { kind, state, reliable, interval: Duration::ZERO }
    }

    /// Returns the present state.
    pub fn state(&self) -> ServerState {
        self.state
    }

    /// Returns INVITE or not.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Processes a retransmission of the request.
    pub fn request_retransmission(&mut self) -> Step {
        let transmit = match self.state {
            // RFC 3261 section 17.2.1 and 17.2.2: the most recent response, if there is one; in
            // Trying there is none, and the retransmission is discarded.
            ServerState::Proceeding | ServerState::Completed => Transmit::Last,
            // RFC 6026 section 7.1: "absorbed" in Accepted.
            _ => Transmit::Nothing,
        };
        Step { transmit, ..Step::default() }
    }

    /// Processes a matching ACK (INVITE only).
    pub fn ack(&mut self, t: &Timers) -> Step {
        match self.state {
            ServerState::Completed => {
                self.state = ServerState::Confirmed;
                // Timer I: T4 over an unreliable transport, else none.
                let i = if self.reliable { Duration::ZERO } else { t.t4 };
                Step { repeat: Step::STOP, deadline: Deadline::Linger(i), ..Step::default() }
            }
            // RFC 6026 section 7.1: an ACK in Accepted is passed to the transaction user.
            ServerState::Accepted => Step { pass: true, ..Step::default() },
            _ => Step::default(),
        }
    }

    /// Processes a response of the transaction user with `status`.
    pub fn respond(&mut self, status: u16, t: &Timers) -> Step {
        let given = Step { transmit: Transmit::Given, ..Step::default() };
        match (self.kind, self.state, status) {
            (_, ServerState::Trying | ServerState::Proceeding, 100..=199) => {
                self.state = ServerState::Proceeding;
                given
            }
            (Kind::Invite, ServerState::Proceeding, 200..=299) => {
                self.state = ServerState::Accepted;
                // Timer L (RFC 6026 section 7.1).
                Step { deadline: Deadline::Linger(t.lifetime()), ..given }
            }
            // RFC 6026 section 7.1: further 2xx pass through Accepted.
            (Kind::Invite, ServerState::Accepted, 200..=299) => given,
            (Kind::Invite, ServerState::Proceeding, _) => {
                self.state = ServerState::Completed;
                self.interval = t.t1;
                // Timer G repeats over an unreliable transport only; timer H bounds the wait.
                let repeat = if self.reliable { None } else { Some(t.t1) };
                Step { repeat, deadline: Deadline::After(t.lifetime()), ..given }
            }
            (Kind::NonInvite, ServerState::Trying | ServerState::Proceeding, _) => {
                self.state = ServerState::Completed;
                // Timer J.
                let j = if self.reliable { Duration::ZERO } else { t.lifetime() };
                Step { deadline: Deadline::Linger(j), ..given }
            }
            // "Any other final responses passed by the TU MUST be discarded" (17.2.2).
            _ => Step::default(),
        }
    }

    /// Processes the repeating timer (G).
    pub fn repeat(&mut self, t: &Timers) -> Step {
        if self.state != ServerState::Completed || self.kind != Kind::Invite {
            return Step { repeat: Step::STOP, ..Step::default() };
        }
        self.interval = (self.interval * 2).min(t.t2);
        Step { transmit: Transmit::Last, repeat: Some(self.interval), ..Step::default() }
    }

    /// Processes the deadline (H, I, J, L). `pass` means that the ACK never came.
    pub fn deadline(&mut self) -> Step {
        let pass = self.kind == Kind::Invite && self.state == ServerState::Completed;
        self.state = ServerState::Terminated;
        Step { pass, repeat: Step::STOP, deadline: Deadline::Clear, ..Step::default() }
    }

    /// Ends the transaction, answered or not.
    pub fn terminate(&mut self) {
        self.state = ServerState::Terminated;
    }
}

/// A client transaction.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    kind: Kind,
    state: ClientState,
    reliable: bool,
    interval: Duration,
}

impl Client {
    /// Returns a client transaction whose request is being sent now, with the timers to start: A and B, or E and F.
    pub fn new(kind: Kind, reliable: bool, t: &Timers) -> (Self, Step) {
        let state = match kind {
            Kind::Invite => ClientState::Calling,
            Kind::NonInvite => ClientState::Trying,
        };
        let step = Step {
            transmit: Transmit::Given,
            repeat: if reliable { None } else { Some(t.t1) },
            deadline: Deadline::After(t.lifetime()),
            ..Step::default()
        };
        (Client { kind, state, reliable, interval: t.t1 }, step)
    }

    /// Returns the present state.
    pub fn state(&self) -> ClientState {
        self.state
    }

    /// Returns INVITE or not.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Processes a response.
    pub fn response(&mut self, status: u16, t: &Timers) -> Step {
        let pass = Step { pass: true, ..Step::default() };
        match (self.kind, self.state, status) {
            (Kind::Invite, ClientState::Calling, 100..=199) => {
                self.state = ClientState::Proceeding;
                // Timers A and B stop; the ringing time is the user's (timer C of a proxy).
                Step { repeat: Step::STOP, deadline: Deadline::Clear, ..pass }
            }
            // The deadline of a CANCEL stays: further provisional responses do not extend a cancelled INVITE (RFC 3261
            // section 9.1).
            (Kind::Invite, ClientState::Proceeding, 100..=199) => pass,
            (Kind::Invite, ClientState::Calling | ClientState::Proceeding, 200..=299) => {
                self.state = ClientState::Accepted;
                // Timer M (RFC 6026 section 7.2).
                Step { repeat: Step::STOP, deadline: Deadline::Linger(t.lifetime()), ..pass }
            }
            (Kind::Invite, ClientState::Accepted, 200..=299) => pass,
            (Kind::Invite, ClientState::Calling | ClientState::Proceeding, _) => {
                self.state = ClientState::Completed;
                let d = if self.reliable { Duration::ZERO } else { t.d() };
                Step {
                    transmit: Transmit::Ack,
                    repeat: Step::STOP,
                    deadline: Deadline::Linger(d),
                    ..pass
                }
            }
            // A repeated final response: the ACK is sent again, and nothing is passed to the user (17.1.1.2).
            (Kind::Invite, ClientState::Completed, 300..=699) => {
                Step { transmit: Transmit::Ack, ..Step::default() }
            }
            (Kind::NonInvite, ClientState::Trying | ClientState::Proceeding, 100..=199) => {
                self.state = ClientState::Proceeding;
                // Timer E continues, with T2 from its next firing (17.1.2.2).
                pass
            }
            (Kind::NonInvite, ClientState::Trying | ClientState::Proceeding, _) => {
                self.state = ClientState::Completed;
                // Timer K.
                let k = if self.reliable { Duration::ZERO } else { t.t4 };
                Step { repeat: Step::STOP, deadline: Deadline::Linger(k), ..pass }
            }
            _ => Step::default(),
        }
    }

    /// Processes the repeating timer (A or E).
    pub fn repeat(&mut self, t: &Timers) -> Step {
        match self.state {
            ClientState::Calling => self.interval *= 2,
            ClientState::Trying => self.interval = (self.interval * 2).min(t.t2),
            ClientState::Proceeding if self.kind == Kind::NonInvite => self.interval = t.t2,
            _ => return Step { repeat: Step::STOP, ..Step::default() },
        }
        Step { transmit: Transmit::Last, repeat: Some(self.interval), ..Step::default() }
    }

    /// Processes the deadline. `pass` means that the transaction timed out (B or F), rather than ended.
    pub fn deadline(&mut self) -> Step {
        let pass = matches!(
            self.state,
            ClientState::Calling | ClientState::Trying | ClientState::Proceeding
        );
        self.state = ClientState::Terminated;
        Step { pass, repeat: Step::STOP, deadline: Deadline::Clear, ..Step::default() }
    }

    /// Ends the transaction: the request could not be sent, or the user abandons it.
    pub fn terminate(&mut self) {
        self.state = ClientState::Terminated;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Timers = Timers {
        t1: Duration::from_millis(500),
        t2: Duration::from_secs(4),
        t4: Duration::from_secs(5),
    };
    const LINGER_32: Deadline = Deadline::Linger(Duration::from_secs(32));
    const S32: Deadline = Deadline::After(Duration::from_secs(32));

    /// RFC 3261 section 17.1.1.2: timer A doubles without a ceiling, timer B ends it.
    #[test]
    fn invite_client_over_udp_doubles_until_b() {
        let (mut c, first) = Client::new(Kind::Invite, false, &T);
        assert_eq!((first.repeat, first.deadline), (Some(T.t1), S32));
        let mut waits = vec![];
        for _ in 0..6 {
            let s = c.repeat(&T);
            assert_eq!(s.transmit, Transmit::Last);
            waits.push(s.repeat.unwrap().as_millis());
        }
        assert_eq!(waits, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000]);
        assert!(c.deadline().pass);
        assert_eq!(c.state(), ClientState::Terminated);
    }

    /// RFC 3261 section 17.1.1.2: over a reliable transport nothing repeats and D is zero.
    #[test]
    fn invite_client_over_tcp() {
        let (mut c, first) = Client::new(Kind::Invite, true, &T);
        assert_eq!(first.repeat, None);
        let s = c.response(486, &T);
        assert_eq!((s.transmit, s.pass), (Transmit::Ack, true));
        assert_eq!(s.deadline, Deadline::Linger(Duration::ZERO));
    }

    /// RFC 3261 section 17.1.1.2: each copy of a final response is acknowledged, one is passed up.
    #[test]
    fn invite_client_acks_every_copy() {
        let (mut c, _) = Client::new(Kind::Invite, false, &T);
        assert!(c.response(180, &T).pass);
        assert!(c.response(603, &T).pass);
        let again = c.response(603, &T);
        assert_eq!((again.transmit, again.pass), (Transmit::Ack, false));
        assert_eq!(c.response(200, &T), Step::default());
        assert!(!c.deadline().pass);
    }

    /// RFC 6026 section 7.2: every 2xx is passed up while Accepted, anything else is dropped.
    #[test]
    fn invite_client_passes_each_2xx() {
        let (mut c, _) = Client::new(Kind::Invite, false, &T);
        assert_eq!(c.response(200, &T).deadline, LINGER_32);
        assert!(c.response(200, &T).pass);
        assert!(!c.response(486, &T).pass);
        assert!(!c.response(180, &T).pass);
        assert!(!c.deadline().pass);
    }

    /// RFC 3261 section 17.1.2.2: timer E doubles to T2, and is T2 once a 1xx has come.
    #[test]
    fn non_invite_client_backs_off_to_t2() {
        let (mut c, _) = Client::new(Kind::NonInvite, false, &T);
        let waits: Vec<_> = (0..5).map(|_| c.repeat(&T).repeat.unwrap().as_millis()).collect();
        assert_eq!(waits, [1_000, 2_000, 4_000, 4_000, 4_000]);
        let (mut c, _) = Client::new(Kind::NonInvite, false, &T);
        assert!(c.response(100, &T).pass);
        assert_eq!(c.repeat(&T).repeat, Some(T.t2));
        let s = c.response(200, &T);
        assert_eq!(s.deadline, Deadline::Linger(T.t4));
        assert!(!c.response(200, &T).pass);
    }

    /// RFC 3261 section 17.2.1: G repeats to T2 until the ACK; H reports that it never came.
    #[test]
    fn invite_server_repeats_until_ack() {
        let mut s = Server::new(Kind::Invite, false);
        assert_eq!(s.respond(180, &T).transmit, Transmit::Given);
        assert_eq!(s.request_retransmission().transmit, Transmit::Last);
        let f = s.respond(486, &T);
        assert_eq!((f.repeat, f.deadline), (Some(T.t1), S32));
        let waits: Vec<_> = (0..4).map(|_| s.repeat(&T).repeat.unwrap().as_millis()).collect();
        assert_eq!(waits, [1_000, 2_000, 4_000, 4_000]);
        assert_eq!(s.respond(200, &T), Step::default());
        let mut unacked = s;
        assert!(unacked.deadline().pass);
        let a = s.ack(&T);
        assert_eq!(a.deadline, Deadline::Linger(T.t4));
        assert_eq!(s.ack(&T), Step::default());
        assert!(!s.deadline().pass);
    }

    /// RFC 6026 section 7.1: in Accepted the INVITE is absorbed, 2xx and ACK pass.
    #[test]
    fn invite_server_accepted() {
        let mut s = Server::new(Kind::Invite, false);
        assert_eq!(s.respond(200, &T).deadline, LINGER_32);
        assert_eq!(s.request_retransmission(), Step::default());
        assert_eq!(s.respond(200, &T).transmit, Transmit::Given);
        assert_eq!(s.respond(486, &T), Step::default());
        assert!(s.ack(&T).pass);
    }

    /// RFC 3261 section 17.2.2.
    #[test]
    fn non_invite_server() {
        let mut s = Server::new(Kind::NonInvite, false);
        assert_eq!(s.request_retransmission(), Step::default());
        assert_eq!(s.respond(200, &T).deadline, LINGER_32);
        assert_eq!(s.request_retransmission().transmit, Transmit::Last);
        assert_eq!(s.respond(500, &T), Step::default());
        let mut s = Server::new(Kind::NonInvite, true);
        assert_eq!(s.respond(200, &T).deadline, Deadline::Linger(Duration::ZERO));
    }
}
