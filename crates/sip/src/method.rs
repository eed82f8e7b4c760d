//! Request methods.

/// The method of a request. Methods are case-sensitive (RFC 3261 section 7.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Method<'a> {
    /// RFC 3261 section 13.
    Invite,
    /// RFC 3261 section 13.
    Ack,
    /// RFC 3261 section 9.
    Cancel,
    /// RFC 3261 section 15.
    Bye,
    /// RFC 3261 section 10.
    Register,
    /// RFC 3261 section 11.
    Options,
    /// RFC 3262.
    Prack,
    /// RFC 6665.
    Subscribe,
    /// RFC 6665.
    Notify,
    /// RFC 3903.
    Publish,
    /// RFC 6086.
    Info,
    /// RFC 3515.
    Refer,
    /// RFC 3428.
    Message,
    /// RFC 3311.
    Update,
    /// Any other token.
    Other(&'a [u8]),
}

impl<'a> Method<'a> {
    /// Returns the method of a token. Bytes that are no token become [`Method::Other`].
    #[inline]
    pub fn parse(token: &'a [u8]) -> Self {
        match token {
            b"INVITE" => Method::Invite,
            b"ACK" => Method::Ack,
            b"CANCEL" => Method::Cancel,
            b"BYE" => Method::Bye,
            b"REGISTER" => Method::Register,
            b"OPTIONS" => Method::Options,
            b"PRACK" => Method::Prack,
            b"SUBSCRIBE" => Method::Subscribe,
            b"NOTIFY" => Method::Notify,
            b"PUBLISH" => Method::Publish,
            b"INFO" => Method::Info,
            b"REFER" => Method::Refer,
            b"MESSAGE" => Method::Message,
            b"UPDATE" => Method::Update,
            other => Method::Other(other),
        }
    }

    /// Returns the method as written on the wire.
    #[inline]
    pub fn as_bytes(&self) -> &'a [u8] {
        match self {
            Method::Invite => b"INVITE",
            Method::Ack => b"ACK",
            Method::Cancel => b"CANCEL",
            Method::Bye => b"BYE",
            Method::Register => b"REGISTER",
            Method::Options => b"OPTIONS",
            Method::Prack => b"PRACK",
            Method::Subscribe => b"SUBSCRIBE",
            Method::Notify => b"NOTIFY",
            Method::Publish => b"PUBLISH",
            Method::Info => b"INFO",
            Method::Refer => b"REFER",
            Method::Message => b"MESSAGE",
            Method::Update => b"UPDATE",
            Method::Other(name) => name,
        }
    }

    /// Returns whether a request of this method may create a dialog (RFC 3261 section 12, RFC 6665, RFC 3515).
    pub fn makes_dialog(&self) -> bool {
        matches!(self, Method::Invite | Method::Subscribe | Method::Refer)
    }

    /// Returns whether a request of this method within a dialog refreshes the remote target (RFC 3261 section 12.2, RFC
    /// 3311, RFC 6665).
    pub fn refreshes_target(&self) -> bool {
        matches!(self, Method::Invite | Method::Update | Method::Subscribe | Method::Notify)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3261 section 7.1: `invite` and `INVITE` are different methods.
    #[test]
    fn methods_keep_their_case() {
        assert_eq!(Method::parse(b"INVITE"), Method::Invite);
        assert_eq!(Method::parse(b"invite"), Method::Other(b"invite"));
        for name in [&b"INVITE"[..], b"MESSAGE", b"UPDATE", b"NEWMETHOD"] {
            assert_eq!(Method::parse(name).as_bytes(), name);
        }
    }
}
