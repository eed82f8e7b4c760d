//! Graphs by name, and maps of real networks.

use crate::run::RunError;
use ringway_sansio::SplitMix;
use ringway_sim::Error;
use ringway_sim::graph::{Adjacency, LinkModel, Plan, PlanError, Topology};
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::Arc;

/// Children of a router in a tree.
const CHILDREN: u32 = 4;
/// Mean number of neighbours in a disk and a small world.
const DEGREE: u32 = 12;
/// Share of the links of a small world that lead to a random router.
const REWIRED: f64 = 0.1;
/// Links of each new router in a power-law graph.
const LINKS: u32 = 3;

/// A graph that can have any size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Each router is joined to the next.
    Line,
    /// A square grid.
    Grid,
    /// Each router has four children.
    Tree,
    /// A random planar graph.
    Planar,
    /// A unit disk graph with 12 neighbours in the mean.
    Disk,
    /// A ring whose links lead elsewhere with a probability of 0.1, with 12 neighbours.
    SmallWorld,
    /// Degrees that follow a power law; each router brings three links.
    PowerLaw,
}

impl Shape {
    const fn name(self) -> &'static str {
        match self {
            Shape::Line => "line",
            Shape::Grid => "grid",
            Shape::Tree => "tree",
            Shape::Planar => "planar",
            Shape::Disk => "disk",
            Shape::SmallWorld => "small world",
            Shape::PowerLaw => "power law",
        }
    }

    fn topology(self, size: u32, random: &mut SplitMix) -> Topology {
        match self {
            Shape::Line => Topology::line(size),
            Shape::Grid => Topology::grid(size.isqrt(), size.isqrt()),
            Shape::Tree => Topology::tree(size, CHILDREN),
            Shape::Planar => Topology::planar(size, random),
            Shape::Disk => Topology::disk(size, DEGREE.into(), random),
            Shape::SmallWorld => Topology::small_world(size, DEGREE, REWIRED, random),
            Shape::PowerLaw => Topology::power_law(size, LINKS, random),
        }
    }
}

/// One network.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A graph of a shape and a size.
    Shape(Shape, u32),
    /// A map, with the name of its file.
    Map(String, PathBuf, Arc<Plan>),
}

impl Kind {
    /// Returns its name in tables.
    pub fn name(&self) -> String {
        match self {
            Kind::Shape(shape, _) => shape.name().into(),
            Kind::Map(name, ..) => name.clone(),
        }
    }

    /// Returns the number of its routers, before parts of it are left out.
    pub fn size(&self) -> u32 {
        match self {
            Kind::Shape(_, size) => *size,
            Kind::Map(.., plan) => plan.nodes.len() as u32,
        }
    }

    /// Creates its links; of a graph of a shape with several parts the largest.
    pub(super) fn adjacency(&self, usual: LinkModel, seed: u64) -> Result<Adjacency, RunError> {
        match self {
            Kind::Shape(shape, size) => {
                let topology = shape.topology(*size, &mut SplitMix::new(seed)).largest_part();
                Ok(Adjacency::new(&topology, |_, _| usual)?)
            }
            Kind::Map(_, path, plan) => {
                let adjacency = plan.adjacency(usual);
                let named = |error: PlanError| format!("{}: {error}", path.display());
                Ok(adjacency.map_err(|error| Error::Settings { what: named(error) })?)
            }
        }
    }
}
