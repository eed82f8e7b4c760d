//! What follows from the statements about one name: who its home is, and where it is registered.

use ringway_dht::Record;
use ringway_mesh::NodeId;
use ringway_mesh::crypto::Crypto;
use ringway_sansio::Time;
use smallvec::SmallVec;

use crate::numbers::Alias;
use crate::statement::{Account, Location};

/// The home of a user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Home {
    /// The router on which the user was added.
    pub router: NodeId,
    /// What it states.
    pub account: Account,
}

/// Where a user is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Located {
    /// The home; `None` if nobody has added such a user.
    pub home: Option<Home>,
    /// The routers at which the user is registered, with the preference of each in thousandths.
    pub routers: SmallVec<[(NodeId, u16); 2]>,
    /// The users that the name stands for, if it is a number and not a user itself.
    pub aliases: Vec<Alias>,
}

impl Located {
    /// Returns whether a router may send as this user: the user was added or is registered there.
    pub fn allows(&self, router: NodeId) -> bool {
        self.home.as_ref().is_some_and(|home| home.router == router)
            || self.routers.iter().any(|&(at, _)| at == router)
    }
}

/// Returns the account that has the name, of all that claim it; `records` have been verified, and are in the order in which
/// keepers have had them. The home that was known before keeps it. Otherwise the first has it: what homes state of the time
/// at which they have added the user would be worth nothing.
///
/// `signer` returns the verified signer of a record.
pub fn home(
    records: &[Record],
    known: Option<NodeId>,
    signer: impl Fn(&Record) -> NodeId,
) -> Option<Home> {
    let claims = records.iter().filter_map(|record| {
        let account = Account::parse(record.value()).ok()?;
        Some(Home { router: signer(record), account })
    });
    first(claims, known)
}

/// Returns the one of several claims that has the name, as [`home`] does.
pub fn first(claims: impl Iterator<Item = Home>, known: Option<NodeId>) -> Option<Home> {
    claims.min_by_key(|home| known != Some(home.router))
}

/// Returns whether a router may have a user of this home, as it states: the home may, and who has a grant of the home.
pub fn may_have<C: Crypto>(
    now: Time,
    name: &str,
    home: &Home,
    (router, location): (NodeId, &Location),
    bits: u8,
) -> bool {
    match &location.grant {
        _ if router == home.router => true,
        None => false,
        Some(grant) => {
            grant.password_set >= home.account.password_set
                && !grant.has_ended(now)
                && grant.is_of::<C>((home.router, &home.account), name, router, bits)
        }
    }
}

/// Returns the routers that [may have](may_have) the user registered, of all that state it; `records` have been verified.
pub fn routers<C: Crypto>(
    now: Time,
    name: &str,
    home: &Home,
    records: &[Record],
    bits: u8,
    signer: impl Fn(&Record) -> NodeId,
) -> SmallVec<[(NodeId, u16); 2]> {
    let stated = records.iter().filter_map(|record| {
        let (router, location) = (signer(record), Location::parse(record.value()).ok()?);
        let may = may_have::<C>(now, name, home, (router, &location), bits);
        may.then_some((router, location.preference))
    });
    stated.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{KIND_ACCOUNT, KIND_LOCATION};
    use crate::statement::Grant;
    use ringway_dht::Draft;
    use ringway_mesh::Identity;
    use ringway_mesh::crypto::Real;
    use ringway_mesh::id::Sequence;
    use ringway_mesh::identity::Search;
    use ringway_sansio::SplitMix;

    const NOW: Time = Time::from_secs(1_000);

    fn identity(seed: u64) -> Identity {
        Search::new(0, &mut SplitMix::new(seed)).step(1).unwrap()
    }

    fn record(by: &Identity, kind: u8, value: &[u8]) -> Record {
        let draft = Draft { kind, name: b"alice@mesh", value, lifetime: 600 };
        Record::sign::<Real>(by, Sequence::default(), &draft).unwrap()
    }

    fn account(by: &Identity) -> Record {
        let account = Account { password_set: 5, ..Account::default() };
        record(by, KIND_ACCOUNT, &account.to_octets())
    }

    fn signer(record: &Record) -> NodeId {
        record.proof().id()
    }

    #[test]
    fn the_first_account_has_the_name_unless_another_home_is_known() {
        let (early, late) = (identity(1), identity(2));
        let records = [account(&early), account(&late)];
        assert_eq!(home(&records, None, signer).unwrap().router, early.id());
        assert_eq!(home(&records, Some(late.id()), signer).unwrap().router, late.id());
        assert_eq!(home(&[], None, signer), None);
    }

    #[test]
    fn only_the_home_and_routers_with_its_grant_have_the_user() {
        let (own, visited, stranger) = (identity(1), identity(2), identity(3));
        let home = home(&[account(&own)], None, signer).unwrap();
        let at = |by: &Identity, grant: Option<Grant>| {
            record(by, KIND_LOCATION, &Location { preference: 1_000, grant }.to_octets())
        };
        let grant = |by: &Identity, to: &Identity, end, password| {
            Some(Grant::sign::<Real>(by, "alice@mesh", to.id(), (end, password)))
        };
        let found =
            |record: Record| routers::<Real>(NOW, "alice@mesh", &home, &[record], 0, signer).len();
        assert_eq!(found(at(&own, None)), 1);
        assert_eq!(found(at(&visited, grant(&own, &visited, 2_000, 5))), 1);
        // None, one that has ended, of an earlier password, for another router, by another home.
        assert_eq!(found(at(&stranger, None)), 0);
        assert_eq!(found(at(&visited, grant(&own, &visited, 1_000, 5))), 0);
        assert_eq!(found(at(&visited, grant(&own, &visited, 2_000, 4))), 0);
        assert_eq!(found(at(&stranger, grant(&own, &visited, 2_000, 5))), 0);
        assert_eq!(found(at(&stranger, grant(&stranger, &stranger, 2_000, 5))), 0);
    }
}
