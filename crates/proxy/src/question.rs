//! Questions to the world about users of other servers, and its replies.

use std::fmt;

/// The maximum length of credentials that the world is asked about, in octets. Longer ones count as wrong.
pub const MAX_CREDENTIALS_VALUE: usize = 600;

/// A question to the world.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Question {
    /// The servers at which a user is registered.
    Location {
        /// The address-of-record.
        aor: Box<[u8]>,
    },
    /// The routing rules that other servers share.
    Rules,
    /// Whether the credentials of a user of another server are right.
    Credentials(Box<CredentialsQuestion>),
    /// Whether a message can be kept until its recipient, who is registered nowhere, has returned.
    Keep(Box<MessageToKeep>),
}

/// A message for a user who is registered nowhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MessageToKeep {
    /// The address-of-record of the recipient.
    pub to: Box<[u8]>,
    /// The address-of-record of the sender, who has proved to be this user.
    pub from: Box<[u8]>,
    /// Time in seconds after which it is void.
    pub lifetime: u32,
    /// What is kept of it, for [`Core::deliver`](crate::Core::deliver), at most [`MAX_KEPT`](crate::core::MAX_KEPT) octets.
    pub octets: Box<[u8]>,
}

/// Digest credentials that this server cannot check, because it does not know the password. Their nonce is one of this
/// server, and fresh.
#[derive(Clone, PartialEq, Eq)]
pub struct CredentialsQuestion {
    /// User name, without escapes.
    pub user: Box<[u8]>,
    /// The realm, which is the name of a domain of ours.
    pub realm: Box<[u8]>,
    /// The algorithm of the digest.
    pub algorithm: ringway_sip::digest::Algorithm,
    /// The method of the digest.
    pub method: Box<[u8]>,
    /// The value of the header field, at most [`MAX_CREDENTIALS_VALUE`] octets.
    pub value: Box<[u8]>,
}

impl fmt::Debug for CredentialsQuestion {
    /// Hides the digest.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialsQuestion")
            .field("user", &String::from_utf8_lossy(&self.user))
            .field("realm", &String::from_utf8_lossy(&self.realm))
            .finish_non_exhaustive()
    }
}

/// The verdict of another server about credentials.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CredentialsVerdict {
    /// They prove that the sender is the user.
    Right,
    /// The digest does not fit the user's password.
    Wrong,
    /// No server has this user.
    NoSuchUser,
}

/// The credentials of a request that the world has been asked about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CredentialsAnswer {
    /// The value of the header field.
    pub value: Box<[u8]>,
    /// The verdict; `None` if there is no answer.
    pub verdict: Option<CredentialsVerdict>,
}

/// The reply of the world to a [`Question`]. A reply to another question counts as [`Reply::Unavailable`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply {
    /// The store knows now at which servers the user is registered, or which rules other servers share.
    Located,
    /// The verdict about the credentials.
    Credentials(CredentialsVerdict),
    /// The message is kept safely, and its sender is answered 202.
    Kept,
    /// There is no answer: the servers to ask were not reached, or did not answer in time.
    Unavailable,
}
