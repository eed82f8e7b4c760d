//! A book of what the mesh and this server know.
//!
//! What other routers state is hostile: any of them may state thousands of users with any names. A name has one entry, of
//! the home that has it (`ringway_directory::resolve`). If there are more users than a book has, each home has an equal
//! share.

use std::collections::{BTreeMap, HashMap, HashSet};

use ringway_directory::resolve::{Home, first, may_have};
use ringway_directory::statement::unmarked;
use ringway_directory::{Account, Location, Stated};
use ringway_mesh::NodeId;
use ringway_mesh::crypto::Real;
use ringway_phonebook::book::MAX_ENTRIES;
use ringway_phonebook::{Book, Entry};
use ringway_sansio::Time;

/// What is known.
pub(super) struct Known<'a> {
    /// The domain whose users are listed.
    pub(super) domain: &'a str,
    /// This router, in a mesh.
    pub(super) own: NodeId,
    /// Zero bits that hash extensions of identities must have.
    pub(super) bits: u8,
    /// The users of this server, with their domain.
    pub(super) users: Vec<(Box<str>, Account)>,
    /// Who is registered here, with the domain.
    pub(super) registered: HashSet<Box<str>>,
    /// What all routers of the mesh state.
    pub(super) accounts: &'a [Stated<Account>],
    /// The same.
    pub(super) locations: &'a [Stated<Location>],
}

impl Known<'_> {
    /// Returns the book, and how many users are left out as there are too many.
    pub(super) fn book(self, now: Time) -> (Book, usize) {
        let (domain, own, bits) = (self.domain, self.own, self.bits);
        let present = self.present();
        let homes = self.homes();
        let count = homes.len();
        let kept = shares(own, homes, MAX_ENTRIES);
        let dropped = count - kept.len();
        let entries = kept.into_iter().filter_map(|(name, home)| {
            let (user, of) = name.rsplit_once('@')?;
            let is_there = |(router, location): &(NodeId, &Location)| {
                may_have::<Real>(now, name, &home, (*router, location), bits)
            };
            let elsewhere = present.get(name).is_some_and(|at| at.iter().any(is_there));
            (of == domain).then(|| Entry {
                user: user.to_owned(),
                number: number(&home.account, user),
                name: Some(home.account.display.to_string()).filter(|name| !name.is_empty()),
                domain: domain.to_owned(),
                present: elsewhere || self.registered.contains(name),
            })
        });
        let book = Book::new(entries);
        let dropped = dropped + book.dropped();
        (book, dropped)
    }

    /// Returns the home of each name.
    fn homes(&self) -> BTreeMap<&str, Home> {
        let own: HashMap<&str, &Account> =
            self.users.iter().map(|(name, account)| (&**name, account)).collect();
        let mut claims: BTreeMap<&str, Vec<Home>> = BTreeMap::new();
        let mut claim = |name, router, account: &Account| {
            claims.entry(name).or_default().push(Home { router, account: account.clone() });
        };
        for stated in self.accounts {
            // Of this server only marked names are taken from the list: what it has is known better.
            let is_known = match stated.router == self.own {
                true => match unmarked(&stated.name, self.own) {
                    Some(name) => !own.contains_key(&*name),
                    None => true,
                },
                false => false,
            };
            if !is_known {
                claim(&stated.name, stated.router, &stated.value);
            }
        }
        // Another router is listed only if it has the name.
        own.iter().for_each(|(&name, &account)| claim(name, self.own, account));
        let homes = claims.into_iter();
        homes.filter_map(|(name, all)| Some((name, first(all.into_iter(), None)?))).collect()
    }

    /// Returns which routers state that a user is there.
    fn present(&self) -> HashMap<&str, Vec<(NodeId, &Location)>> {
        let mut present: HashMap<&str, Vec<(NodeId, &Location)>> = HashMap::new();
        for stated in self.locations {
            // Who is registered here is known better.
            if stated.router != self.own {
                present.entry(&stated.name).or_default().push((stated.router, &stated.value));
            }
        }
        present
    }
}

/// Returns what is dialled: the short number, or the user if that is one.
fn number(account: &Account, user: &str) -> Option<String> {
    match &*account.number {
        "" => user.bytes().all(|b| b.is_ascii_digit()).then(|| user.to_owned()),
        number => Some(number.to_owned()),
    }
}

/// Returns at most `max` of all: the users of this server, and of the others as many of each home as there is room for.
fn shares(own: NodeId, homes: BTreeMap<&str, Home>, max: usize) -> Vec<(&str, Home)> {
    let mut counts: BTreeMap<NodeId, usize> = BTreeMap::new();
    homes.values().for_each(|home| *counts.entry(home.router).or_default() += 1);
    let mut room = max.saturating_sub(counts.remove(&own).unwrap_or(0));
    let mut sizes: Vec<usize> = counts.into_values().collect();
    sizes.sort_unstable();
    // Who has less than an equal part leaves the rest to the others.
    let (mut left, mut share) = (sizes.len(), usize::MAX);
    for size in sizes {
        if size > room / left.max(1) {
            share = room / left.max(1);
            break;
        }
        room -= size;
        left -= 1;
    }
    let mut taken: BTreeMap<NodeId, usize> = BTreeMap::new();
    let mut take = |home: &Home| {
        let taken = taken.entry(home.router).or_default();
        *taken += 1;
        home.router == own || *taken <= share
    };
    homes.into_iter().filter(|(_, home)| take(home)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_directory::Grant;
    use ringway_directory::statement::marked;
    use ringway_mesh::Identity;
    use ringway_mesh::identity::Search;
    use ringway_sansio::SplitMix;

    const NOW: Time = Time::from_secs(1_000);
    const OWN: NodeId = NodeId::new(0x1f3c << 48);

    fn account(number: &str) -> Account {
        Account { password_set: 10, number: number.into(), ..Account::default() }
    }

    fn stated<T>(name: &str, router: NodeId, value: T) -> Stated<T> {
        Stated { name: name.into(), router, value }
    }

    fn known<'a>(accounts: &'a [Stated<Account>], locations: &'a [Stated<Location>]) -> Known<'a> {
        Known {
            domain: "mesh",
            own: OWN,
            bits: 0,
            users: vec![("alice@mesh".into(), account("200")), ("carol@mesh".into(), account(""))],
            registered: [Box::from("alice@mesh")].into(),
            accounts,
            locations,
        }
    }

    /// User, number, and whether present.
    fn lines(known: Known<'_>) -> Vec<String> {
        let (book, _) = known.book(NOW);
        let line = |listed: &ringway_phonebook::book::Listed| {
            let Entry { user, number, present, .. } = listed.entry();
            format!("{user} {} {present}", number.as_deref().unwrap_or("-"))
        };
        book.listed().iter().map(line).collect()
    }

    fn identity(seed: u64) -> Identity {
        Search::new(0, &mut SplitMix::new(seed)).step(1).unwrap()
    }

    #[test]
    fn users_of_all_homes_are_listed_once_by_the_one_who_has_the_name() {
        let other = NodeId::new(7);
        let accounts = [
            stated("bob@mesh", other, account("300")),
            stated("carol@mesh", other, account("302")),
            stated(&marked("carol@mesh", OWN), OWN, account("203")),
            // A user that was removed here a moment ago, and names that are nobody's here.
            stated("dave@mesh", OWN, account("204")),
            stated("eve@elsewhere", other, account("305")),
            stated("nobody", other, account("306")),
            stated("10011@mesh", other, account("")),
        ];
        let expected = [
            "10011 10011 false",
            "alice 200 true",
            "bob 300 false",
            "carol 302 false",
            "carol~1f3c 203 false",
        ];
        assert_eq!(lines(known(&accounts, &[])), expected);
        assert_eq!(lines(known(&[], &[])), ["alice 200 true", "carol - false"]);
    }

    /// A router that states without a permission that a user is there is not believed.
    #[test]
    fn who_is_registered_elsewhere_is_present_if_that_router_may_have_the_user() {
        let (home, visited, liar) = (identity(1), identity(2), NodeId::new(9));
        let accounts = [
            stated("bob@mesh", home.id(), account("300")),
            stated("dora@mesh", home.id(), account("301")),
            stated("erik@mesh", home.id(), account("302")),
        ];
        let grant = Grant::sign::<Real>(&home, "dora@mesh", visited.id(), (2_000, 10));
        let at = |name, router, grant| stated(name, router, Location { preference: 1_000, grant });
        let locations = [
            at("bob@mesh", home.id(), None),
            at("dora@mesh", visited.id(), Some(grant)),
            at("erik@mesh", visited.id(), Some(grant)),
            at("erik@mesh", liar, None),
            // Of this router it is known that she is not.
            at("carol@mesh", OWN, None),
        ];
        let expected =
            ["alice 200 true", "bob 300 true", "carol - false", "dora 301 true", "erik 302 false"];
        assert_eq!(lines(known(&accounts, &locations)), expected);
    }

    #[test]
    fn one_home_with_thousands_of_users_takes_the_room_of_no_other() {
        let hostile = NodeId::new(1);
        let mut accounts: Vec<_> =
            (0..12_000).map(|n| stated(&format!("a{n}@mesh"), hostile, account(""))).collect();
        accounts
            .extend((0..3_000).map(|n| stated(&format!("z{n}@mesh"), NodeId::new(2), account(""))));
        let (book, dropped) = known(&accounts, &[]).book(NOW);
        let users =
            |of: char| book.listed().iter().filter(move |one| one.entry().user.starts_with(of));
        // Alice is of this server.
        assert_eq!((users('a').count(), users('z').count(), users('c').count()), (6_999, 3_000, 1));
        assert_eq!((book.listed().len(), dropped), (MAX_ENTRIES, 5_002));
    }
}
