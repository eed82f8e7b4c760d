//! What an operator asks of short numbers: which networks there are, and to reclaim or retire what is of use no longer.

use ringway_mesh::NodeId;
use ringway_phonebook::numbers::Numbers;
use ringway_phonebook::numbers::state::Holder;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

/// Short numbers of a router, as an operator sees them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NumbersView {
    /// The network of short numbers; `None` if this router is in none yet.
    pub network: Option<Network>,
    /// Users of this router who wait for a number.
    pub waiting: usize,
    /// Free blocks of ten numbers that this router owns.
    pub free_blocks: u64,
    /// Routers that are known to have been granted blocks, by their ids.
    pub routers: Vec<String>,
    /// Whether there are others that are not known any more.
    pub more_routers: bool,
    /// Earlier networks, whose numbers are still valid.
    pub earlier: Vec<Network>,
    /// Whether a census is under way, of this router or of another one: no blocks are accepted until it ends.
    pub census: bool,
    /// How the latest census of this router has ended.
    pub found: Option<String>,
}

/// A network of short numbers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Network {
    /// The mark of its numbers in other networks, four digits.
    pub mark: String,
    /// Its identity.
    pub id: String,
    /// Users of this router with a number of it.
    pub users: usize,
}

/// What is asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Order {
    /// Nothing is changed.
    Show,
    /// A census of what all other routers hold begins; what nobody holds is this router's then.
    Reclaim {
        /// Routers that never return, by their ids.
        lost: Vec<u64>,
        /// All others that have ever been granted blocks.
        others: Vec<u64>,
        /// Whether routers may be left out that are known to have been granted blocks.
        unchecked: bool,
    },
    /// The numbers of an earlier network end.
    Retire {
        /// Its mark.
        mark: u16,
    },
}

/// The answer to an order, or why it is refused.
pub type Answer = Result<NumbersView, String>;

/// An order that waits for the thread.
#[derive(Debug)]
pub(super) struct Waiting {
    pub order: Order,
    pub reply: oneshot::Sender<Answer>,
}

/// Returns the short numbers of a router; `waiting` users have none, and `found` is how its latest census has ended.
pub(super) fn view(machine: &Numbers, waiting: usize, found: Option<&str>) -> NumbersView {
    let state = machine.state();
    let is_user = |holder: &&Holder| matches!(holder, Holder::User(_));
    let users = state.slots.values().filter(is_user).count();
    let network = |tag: ringway_phonebook::numbers::Tag, users| Network {
        mark: format!("{:04}", tag.mark()),
        id: tag.to_string(),
        users,
    };
    NumbersView {
        network: state.home.map(|tag| network(tag, users)),
        waiting,
        free_blocks: machine.free_blocks(),
        routers: state.kin.iter().map(|&node| NodeId::new(node).to_string()).collect(),
        more_routers: state.kin_incomplete,
        earlier: state.legacy.iter().map(|of| network(of.tag, of.users.len())).collect(),
        census: state.freeze.is_some(),
        found: found.map(str::to_owned),
    }
}
