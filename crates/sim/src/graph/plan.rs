//! Graphs that someone described: nodes with names and positions, and links with models.

use super::adjacency::{Adjacency, LinkModel};
use super::topology::Topology;
use crate::error::Error;
use crate::events::MAX_NODES;
use ringway_link::{Chance, Rate};
use ringway_sansio::Duration;
use std::collections::BTreeMap;

/// Maximum delay of a link.
const MAX_DELAY: Duration = Duration::from_micros(u32::MAX as u64);

/// A node of a plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanNode {
    /// Its name, which no other node has.
    pub id: String,
    /// Its position, in any unit.
    pub position: Option<[f64; 2]>,
}

/// A link of a plan, which is the same in both directions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanLink {
    /// The name of one end.
    pub source: String,
    /// The name of the other end.
    pub target: String,
    /// Its delay, if it is not the usual one.
    pub delay: Option<Duration>,
    /// Its loss, if it is not the usual one.
    pub loss: Option<Chance>,
    /// Its rate, if it is not the usual one.
    pub rate: Option<Rate>,
}

/// A description of a graph. Its nodes are numbered in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The nodes.
    pub nodes: Vec<PlanNode>,
    /// The links.
    pub links: Vec<PlanLink>,
}

/// The reason why a plan is not that of a graph.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// It has no node.
    #[error("expected at least one node, got none")]
    NoNodes,
    /// Two nodes have one name.
    #[error("two nodes have the id {0:?}")]
    RepeatedNode(String),
    /// A coordinate is infinite or not a number.
    #[error("node {id:?}: expected finite coordinates, got {x} and {y}")]
    Position {
        /// The name of the node.
        id: String,
        /// Its first coordinate.
        x: f64,
        /// Its second coordinate.
        y: f64,
    },
    /// A link ends at a node that does not exist.
    #[error("link {link} (from {source_id:?} to {target:?}): no node has the id {unknown:?}")]
    UnknownNode {
        /// The position of the link, counted from 0.
        link: usize,
        /// The name of its one end.
        source_id: String,
        /// The name of its other end.
        target: String,
        /// The name that no node has.
        unknown: String,
    },
    /// A link leads to where it comes from.
    #[error("link {link} leads from node {id:?} to itself")]
    Loop {
        /// The position of the link, counted from 0.
        link: usize,
        /// The name of the node.
        id: String,
    },
    /// Two links join the same nodes.
    #[error("links {first} and {second} both join {source_id:?} and {target:?}")]
    RepeatedLink {
        /// The position of the first link, counted from 0.
        first: usize,
        /// The position of the second link.
        second: usize,
        /// The name of one end of the second.
        source_id: String,
        /// The name of its other end.
        target: String,
    },
    /// A delay is too long.
    #[error("link {link}: expected a delay of at most {MAX_DELAY:?}, got {delay:?}")]
    Delay {
        /// The position of the link, counted from 0.
        link: usize,
        /// Its delay.
        delay: Duration,
    },
    /// A link transports nothing.
    #[error("link {link}: expected a rate above 0, got 0 bit/s")]
    Rate {
        /// The position of the link, counted from 0.
        link: usize,
    },
    /// A limit is reached.
    #[error(transparent)]
    Limit(#[from] Error),
}

impl Plan {
    /// Creates the links of the graph. `usual` is the model where a link has no value of its own.
    pub fn adjacency(&self, usual: LinkModel) -> Result<Adjacency, PlanError> {
        let nodes = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        if nodes > MAX_NODES {
            return Err(Error::TooMany { what: "nodes", max: MAX_NODES.into() }.into());
        }
        let numbers = self.numbers()?;
        let mut models = BTreeMap::new();
        for (position, link) in self.links.iter().enumerate() {
            let ends = self.ends(position, link, &numbers)?;
            let model = Self::model(position, link, usual)?;
            if let Some((first, _)) = models.insert(ends, (position, model)) {
                let (source_id, target) = (link.source.clone(), link.target.clone());
                return Err(PlanError::RepeatedLink { first, second: position, source_id, target });
            }
        }
        let topology = Topology::new(nodes, models.keys().copied());
        let model = |a: u32, b: u32| models.get(&[a.min(b), a.max(b)]).map_or(usual, |(_, m)| *m);
        Ok(Adjacency::new(&topology, model)?)
    }

    /// Returns the number of each node by its name.
    fn numbers(&self) -> Result<BTreeMap<&str, u32>, PlanError> {
        let mut numbers = BTreeMap::new();
        for (number, PlanNode { id, position }) in (0..).zip(&self.nodes) {
            if numbers.insert(id.as_str(), number).is_some() {
                return Err(PlanError::RepeatedNode(id.clone()));
            }
            if let Some([x, y]) = *position
                && !(x.is_finite() && y.is_finite())
            {
                return Err(PlanError::Position { id: id.clone(), x, y });
            }
        }
        if numbers.is_empty() { Err(PlanError::NoNodes) } else { Ok(numbers) }
    }

    /// Returns the ends of a link, the lower first.
    fn ends(
        &self,
        position: usize,
        link: &PlanLink,
        numbers: &BTreeMap<&str, u32>,
    ) -> Result<[u32; 2], PlanError> {
        let number = |id: &str| {
            numbers.get(id).copied().ok_or_else(|| PlanError::UnknownNode {
                link: position,
                source_id: link.source.clone(),
                target: link.target.clone(),
                unknown: id.into(),
            })
        };
        let (source, target) = (number(&link.source)?, number(&link.target)?);
        if source == target {
            return Err(PlanError::Loop { link: position, id: link.source.clone() });
        }
        Ok([source.min(target), source.max(target)])
    }

    fn model(position: usize, link: &PlanLink, usual: LinkModel) -> Result<LinkModel, PlanError> {
        let delay = link.delay.unwrap_or(usual.delay);
        let rate = link.rate.unwrap_or(usual.rate);
        if delay > MAX_DELAY {
            return Err(PlanError::Delay { link: position, delay });
        }
        if rate == Rate(0) {
            return Err(PlanError::Rate { link: position });
        }
        Ok(LinkModel { delay, loss: link.loss.unwrap_or(usual.loss), rate, ..usual })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(ids: &[&str], links: &[[&str; 2]]) -> Plan {
        let node = |id: &&str| PlanNode { id: (*id).into(), position: None };
        let link = |[source, target]: &[&str; 2]| PlanLink {
            source: (*source).into(),
            target: (*target).into(),
            ..PlanLink::default()
        };
        Plan { nodes: ids.iter().map(node).collect(), links: links.iter().map(link).collect() }
    }

    const USUAL: LinkModel = LinkModel::new(Duration::from_millis(1));

    #[test]
    fn a_plan_has_its_links() {
        let mut plan = plan(&["a", "b", "c", "alone"], &[["b", "a"], ["c", "b"]]);
        plan.nodes[0].position = Some([-1.5, 2e9]);
        plan.links[1].delay = Some(Duration::from_micros(20));
        let adjacency = plan.adjacency(USUAL).unwrap();
        let neighbours: Vec<Vec<u32>> =
            (0..4).map(|node| adjacency.neighbours(node).collect()).collect();
        // Of node b, the nearer neighbour is the first.
        assert_eq!(neighbours, [vec![1], vec![2, 0], vec![1], vec![]]);
        assert!(!adjacency.has_queues());
        plan.links[0].rate = Some(Rate(1_000));
        assert!(plan.adjacency(USUAL).unwrap().has_queues());
    }

    #[test]
    fn what_is_wrong_with_a_plan_is_named() {
        let error = |plan: &Plan| plan.adjacency(USUAL).unwrap_err().to_string();
        assert_eq!(error(&plan(&[], &[])), "expected at least one node, got none");
        assert_eq!(error(&plan(&["a", "a"], &[])), "two nodes have the id \"a\"");
        assert_eq!(
            error(&plan(&["a", "b"], &[["a", "b"], ["b", "x"]])),
            "link 1 (from \"b\" to \"x\"): no node has the id \"x\""
        );
        assert_eq!(error(&plan(&["a"], &[["a", "a"]])), "link 0 leads from node \"a\" to itself");
        let mut two = plan(&["a", "b"], &[["a", "b"], ["b", "a"]]);
        assert_eq!(error(&two), "links 0 and 1 both join \"b\" and \"a\"");
        two.links[0].rate = Some(Rate(0));
        assert_eq!(error(&two), "link 0: expected a rate above 0, got 0 bit/s");
        two.links[0].delay = Some(Duration::from_secs(5_000));
        assert_eq!(error(&two), "link 0: expected a delay of at most 4294.967295s, got 5000s");
        two.nodes[1].position = Some([f64::NAN, 1.0]);
        assert_eq!(error(&two), "node \"b\": expected finite coordinates, got NaN and 1");
    }
}
