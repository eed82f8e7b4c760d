//! Pictures and ladders in the form of the drawing library.

use super::{LadderSheet, PictureSheet, RungSheet, SpotSheet, SpotStyle, WaySheet, WayStyle};
use ringway_figures::report::{Ladder, Picture, Rung, Spot, SpotKind, Way, WayKind};

impl From<SpotStyle> for SpotKind {
    fn from(style: SpotStyle) -> Self {
        match style {
            SpotStyle::Router => SpotKind::Router,
            SpotStyle::Host => SpotKind::Host,
            SpotStyle::Key => SpotKind::Key,
        }
    }
}

impl From<WayStyle> for WayKind {
    fn from(style: WayStyle) -> Self {
        match style {
            WayStyle::Cable => WayKind::Cable,
            WayStyle::Next => WayKind::Next,
            WayStyle::Packet => WayKind::Packet,
            WayStyle::Answer => WayKind::Answer,
        }
    }
}

/// Converts a picture.
pub(super) fn picture(sheet: &PictureSheet) -> Picture {
    let PictureSheet { name: _, title, caption, ring, height, spots, ways, legend } = sheet.clone();
    let spot = |SpotSheet { name, label, at, style }| Spot {
        name,
        label,
        at,
        kind: SpotKind::from(style),
    };
    let way = |WaySheet { between, style, label }| Way { between, kind: style.into(), label };
    Picture {
        title,
        caption,
        ring,
        height,
        spots: spots.into_iter().map(spot).collect(),
        ways: ways.into_iter().map(way).collect(),
        legend: legend.into_iter().map(|(style, text)| (style.into(), text)).collect(),
    }
}

/// Converts a ladder.
pub(super) fn ladder(sheet: &LadderSheet) -> Ladder {
    let LadderSheet { name: _, title, caption, ends, rungs } = sheet.clone();
    let rung =
        |RungSheet { between, time, label, back }| Rung { between, time, label, second: back };
    Ladder { title, caption, ends, rungs: rungs.into_iter().map(rung).collect() }
}
