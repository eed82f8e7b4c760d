//! Colours and markers.

use super::text::number;

/// The colours of Okabe and Ito (2008) that show on white as well as on black; their yellow does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Colour {
    /// Black on white, white on black.
    Ink,
    /// Orange.
    Orange,
    /// Sky blue.
    SkyBlue,
    /// Bluish green.
    Green,
    /// Blue.
    Blue,
    /// Vermillion.
    Vermillion,
    /// Reddish purple.
    Purple,
}

impl Colour {
    /// In the order in which series take them.
    const ALL: [Self; 7] = [
        Self::Blue,
        Self::Vermillion,
        Self::Green,
        Self::Purple,
        Self::Orange,
        Self::SkyBlue,
        Self::Ink,
    ];

    /// The colour as SVG writes it.
    pub(super) fn code(self) -> &'static str {
        match self {
            Self::Ink => "currentColor",
            Self::Orange => "#e69f00",
            Self::SkyBlue => "#56b4e9",
            Self::Green => "#009e73",
            Self::Blue => "#0072b2",
            Self::Vermillion => "#d55e00",
            Self::Purple => "#cc79a7",
        }
    }
}

/// What marks a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Marker {
    /// A filled circle.
    Circle,
    /// A filled square.
    Square,
    /// A filled triangle, point up.
    Triangle,
    /// A filled diamond.
    Diamond,
    /// A diagonal cross.
    Cross,
    /// An upright cross.
    Plus,
    /// No mark, for a line that needs none.
    None,
}

impl Marker {
    /// In the order in which series take them.
    const ALL: [Self; 6] =
        [Self::Circle, Self::Square, Self::Triangle, Self::Diamond, Self::Cross, Self::Plus];

    /// The outline around the origin of a mark of radius `r`, as SVG path commands that begin with
    /// a relative move: they follow `M x y`. The areas of all marks are about the same.
    pub(super) fn outline(self, r: f64) -> String {
        let n = number;
        match self {
            // A round end of a line of no length is a circle, in the fewest bytes.
            Self::Circle => "h0".to_owned(),
            Self::Square => {
                let a = r * 0.9;
                format!("m{} {0}h{}v{1}h{}z", n(-a), n(2.0 * a), n(-2.0 * a))
            }
            Self::Triangle => {
                let (up, side) = (r * 1.25, r * 1.2);
                format!("m0 {}l{} {}h{}z", n(-up), n(side), n(up * 1.7), n(-2.0 * side))
            }
            Self::Diamond => {
                let a = r * 1.3;
                format!("m0 {}l{1} {1}l{0} {1}l{0} {0}z", n(-a), n(a))
            }
            Self::Cross => {
                let a = r * 0.95;
                format!("m{0} {0}l{1} {1}m0 {2}l{2} {1}", n(-a), n(2.0 * a), n(-2.0 * a))
            }
            Self::Plus => {
                let a = r * 1.2;
                format!("m{} 0h{}m{} {0}v{}", n(-a), n(2.0 * a), n(-a), n(2.0 * a))
            }
            Self::None => String::new(),
        }
    }
}

/// The colour of what stands at `position`, as SVG writes it.
pub(crate) fn colour(position: usize) -> &'static str {
    Look::at(position).colour.code()
}

/// How a series looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Look {
    /// Its colour.
    pub colour: Colour,
    /// Its marker.
    pub marker: Marker,
}

impl Look {
    /// The look of the series at `position`. There are fewer markers than colours, so that the
    /// combinations repeat late.
    pub(super) fn at(position: usize) -> Self {
        Self {
            colour: Colour::ALL[position % Colour::ALL.len()],
            marker: Marker::ALL[position % Marker::ALL.len()],
        }
    }
}
