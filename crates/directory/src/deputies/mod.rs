//! Routers that check the credentials of users whose home is silent.
//!
//! A home has a key besides its own, its *delegate*. Each account states the public half, and what is needed to check the user's credentials,
//! sealed for the delegate. The secret half is cut into shares (A. Shamir, How to share a secret, CACM 22(11), 1979), one for
//! each of two to five other routers, the *deputies*, each sealed for its deputy, in a record of the home. Three shares
//! together are the key; two if there are only two.
//!
//! A router that gets no answer of a home asks one of its deputies to check credentials. This deputy asks the others for
//! their shares. Each of them probes the home itself before it sends its share, and does not if the home answers. So a deputy
//! alone learns nothing while the others reach the home; once they do not, it is believed as the home is: it signs grants with
//! the delegate. A home has another delegate every day, and states the one before as well, whose grants may not have ended.
//!
//! | module | what it holds |
//! |---|---|
//! | [`shares`] | the record, and how a key is cut and put together |
//! | `home` | a home chooses deputies |
//! | `vigil` | a deputy waits for its home, and collects shares |

pub(crate) mod home;
pub mod shares;
pub(crate) mod vigil;

/// What the credentials of a user are checked with, as the server of the home writes it and that of a deputy reads it.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(pub Box<[u8]>);

impl core::fmt::Debug for Secret {
    /// Hides it.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret")
    }
}
