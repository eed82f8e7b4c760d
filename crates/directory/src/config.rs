//! Every limit and interval by name.

use ringway_dht::Kinds;
use ringway_sansio::time::Duration;

/// Kind of the records of accounts.
pub const KIND_ACCOUNT: u8 = 1;
/// Kind of the records of locations.
pub const KIND_LOCATION: u8 = 2;
/// Kind of the records of rules that routers share.
pub const KIND_RULES: u8 = 3;
/// Kind of the records of numbers.
pub const KIND_NUMBER: u8 = 4;
/// Kind of the records of lists of messages.
pub const KIND_MAIL: u8 = 5;
/// Kind of the records of parts of messages.
pub const KIND_MAIL_PART: u8 = 6;
/// Kind of the records of homes about their deputies.
pub const KIND_DEPUTIES: u8 = 7;
/// Maximum length in octets of what a deputy needs to check the credentials of a user.
pub const MAX_SECRET: usize = 96;
/// Maximum length in octets of a user's name with its domain. A name with a mark must fit a name of the DHT.
pub const MAX_NAME: usize = 200;
/// Maximum length in octets of a short number.
pub const MAX_NUMBER: usize = 15;
/// Maximum number of users that one router names for a number.
pub const MAX_ANSWERERS: usize = 4;
/// Maximum number of users that a number stands for.
pub const MAX_ALIASES: usize = 16;
/// Maximum length in octets of a part of a shared rule.
pub const MAX_PATTERN: usize = 64;
/// Maximum length in octets of a name for display.
pub const MAX_DISPLAY: usize = 64;

/// Limits and intervals of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The DHT below.
    pub dht: ringway_dht::Config,
    /// Lifetime in seconds of the record of an account. A home may be away for so long before its names are free.
    pub account_lifetime: u32,
    /// Lifetime in seconds of the record of a location. A router that has ended without notice is called for so long.
    pub location_lifetime: u32,
    /// Time for which the account of a name is known after it was looked up.
    pub account_age: Duration,
    /// Time for which a home may be replaced by an answer that does not name it: the first home that was seen stays.
    pub home_memory: Duration,
    /// Names whose account is known.
    pub accounts: usize,
    /// Time for which a grant is valid.
    pub grant_lifetime: Duration,
    /// Users of other homes that may be registered here.
    pub grants: usize,
    /// Of these, users of one home.
    pub grants_of_home: usize,
    /// Names that are looked for at a time.
    pub questions: usize,
    /// Verifications that this router has asked for, at a time.
    pub verifications: usize,
    /// Verifications that others have asked this router for, at a time.
    pub judgements: usize,
    /// Private messages that are taken from one router in a second, and at once.
    pub private_rate: u32,
    /// See `private_rate`.
    pub private_burst: u32,
    /// Routers whose rates are known.
    pub origins: usize,
    /// Time in which it is found out which of the routers with users who answer for a number is nearest.
    pub nearest: Duration,
    /// Time after which a private message without an answer is sent again.
    pub repeat: Duration,
    /// Time after which a question is given up.
    pub patience: Duration,
    /// Interval at which a router looks for others that claim the names of its users.
    pub audit: Duration,
    /// Time after which a home that does not answer counts as silent: its deputies are asked.
    pub silence: Duration,
    /// Time for which a home that was silent is not waited for.
    pub silence_memory: Duration,
    /// Homes that are known to be silent.
    pub silent_homes: usize,
    /// Time in which a deputy must have confirmed that it was asked.
    pub deputy_confirms: Duration,
    /// Time in which it must have answered after that, before another one is asked as well.
    pub deputy_answers: Duration,
    /// Time after which a verification by a deputy is given up, and after which a deputy gives up.
    pub deputy_patience: Duration,
    /// Time for which a home must not have answered before a deputy shares what it has.
    pub deputy_silence: Duration,
    /// Homes that a deputy watches at a time.
    pub vigils: usize,
    /// Time for which a deputy remembers the key that it has put together after it was last of use.
    pub delegate_memory: Duration,
    /// Time after which a home has another delegate. Grants of a delegate last at most as long.
    pub delegate_period: Duration,
    /// Time after the start in which a home chooses deputies. It doubles until there are enough.
    pub deputies_first: Duration,
    /// Interval at which a home asks whether its deputies are there.
    pub deputies_audit: Duration,
    /// Time in which they must have answered.
    pub deputies_answer: Duration,
    /// Messages that this router has kept for users who are away.
    pub mail: usize,
    /// Of these, messages of one sender.
    pub mail_of_sender: usize,
    /// Of these, messages of one sender for one recipient.
    pub mail_of_sender_to_one: usize,
    /// Messages that are being written at a time.
    pub mail_jobs: usize,
    /// Time after which a message that is being written is given up.
    pub mail_patience: Duration,
    /// Users of this router whose messages are delivered at a time, one after the other for each.
    pub mail_checks: usize,
    /// Shortest interval at which messages for one user are looked for. It doubles while something is left.
    pub mail_pause: Duration,
    /// Longest interval at which messages that are left are tried again.
    pub mail_longest: Duration,
    /// Time after which the server must have reported what became of a message.
    pub mail_outcome: Duration,
    /// Messages for users of this router that are remembered as delivered.
    pub mail_done: usize,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            dht: ringway_dht::Config {
                // Two for each question, and some for audits.
                look_ups: 2_560,
                // For the phonebook: who there is, and who is registered.
                listable: Kinds::none().with(KIND_ACCOUNT).with(KIND_LOCATION),
                claims: Kinds::none().with(KIND_ACCOUNT),
                own_names: Kinds::none().with(KIND_DEPUTIES),
                ..ringway_dht::Config::default()
            },
            account_lifetime: 86_400,
            location_lifetime: 600,
            account_age: Duration::from_secs(300),
            home_memory: Duration::from_secs(7 * 86_400),
            accounts: 16_384,
            grant_lifetime: Duration::from_secs(86_400),
            grants: 4_096,
            grants_of_home: 512,
            questions: 1_024,
            verifications: 256,
            judgements: 256,
            private_rate: 32,
            private_burst: 128,
            origins: 1_024,
            nearest: Duration::from_millis(500),
            repeat: Duration::from_millis(500),
            patience: Duration::from_secs(6),
            audit: Duration::from_secs(600),
            silence: Duration::from_millis(1_500),
            silence_memory: Duration::from_secs(60),
            silent_homes: 1_024,
            deputy_confirms: Duration::from_secs(1),
            // The silence, and look-ups before it.
            deputy_answers: Duration::from_millis(3_500),
            // A request waits for 10 s in all.
            deputy_patience: Duration::from_secs(9),
            deputy_silence: Duration::from_millis(2_500),
            vigils: 64,
            delegate_memory: Duration::from_secs(600),
            delegate_period: Duration::from_secs(86_400),
            deputies_first: Duration::from_secs(15),
            deputies_audit: Duration::from_secs(300),
            deputies_answer: Duration::from_secs(3),
            mail: 1_024,
            mail_of_sender: 32,
            mail_of_sender_to_one: 4,
            mail_jobs: 64,
            // A request waits for 10 s in all, and has asked where the user is before.
            mail_patience: Duration::from_secs(6),
            mail_checks: 32,
            mail_pause: Duration::from_secs(5),
            mail_longest: Duration::from_secs(600),
            // Timer F of RFC 3261 is 32 s.
            mail_outcome: Duration::from_secs(40),
            mail_done: 4_096,
        }
    }
}
