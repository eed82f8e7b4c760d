//! Draws a [`Sheet`]: each figure as SVG and PNG, and the page with all of them.

use super::{AxisSheet, ChartSheet, OutputError, PAGE, SeriesSheet, Sheet, Style, folder, write};
use ringway_figures::chart::{Axis, ChartError, Colour, Data, Figure, Marker, Series};
use ringway_figures::statistics::{Estimate, Interval, LEVEL};
use std::path::Path;

/// Folder of the figures.
const FIGURES: &str = "figures";

/// Draws everything into a folder and returns the names of the files.
pub fn draw(sheet: &Sheet, dir: &Path) -> Result<Vec<String>, OutputError> {
    let figures = dir.join(FIGURES);
    folder(&figures)?;
    let mut files = Vec::new();
    let mut drawn = Vec::new();
    for chart in &sheet.charts {
        let figure = figure(chart);
        let svg = figures.join(format!("{}.svg", chart.name));
        let png = figures.join(format!("{}.png", chart.name));
        write(&svg, figure.svg().map_err(|e| OutputError::rendering(&svg, e))?.as_bytes())?;
        write(&png, &figure.png().map_err(|e| OutputError::rendering(&png, e))?)?;
        files.push(format!("{FIGURES}/{}.svg", chart.name));
        files.push(format!("{FIGURES}/{}.png", chart.name));
        drawn.push(figure);
    }
    for ring in &sheet.rings {
        let svg = figures.join(format!("{}.svg", ring.name));
        write(&svg, super::page::ring(ring).svg().as_bytes())?;
        files.push(format!("{FIGURES}/{}.svg", ring.name));
    }
    for picture in &sheet.pictures {
        let drawn = super::pictures::picture(picture);
        files.extend(write_drawing(&figures, &picture.name, &drawn.svg(), drawn.png())?);
    }
    for ladder in &sheet.ladders {
        let drawn = super::pictures::ladder(ladder);
        files.extend(write_drawing(&figures, &ladder.name, &drawn.svg(), drawn.png())?);
    }
    let page = dir.join(PAGE);
    let html = super::page::page(sheet, drawn).map_err(|e| OutputError::rendering(&page, e))?;
    write(&page, html.as_bytes())?;
    files.push(PAGE.into());
    Ok(files)
}

/// Writes a drawing as SVG and PNG.
fn write_drawing(
    figures: &Path,
    name: &str,
    svg: &str,
    png: Result<Vec<u8>, ChartError>,
) -> Result<[String; 2], OutputError> {
    let names = ["svg", "png"].map(|ending| format!("{name}.{ending}"));
    write(&figures.join(&names[0]), svg.as_bytes())?;
    let path = figures.join(&names[1]);
    write(&path, &png.map_err(|error| OutputError::rendering(&path, error))?)?;
    Ok(names.map(|name| format!("{FIGURES}/{name}")))
}

/// Converts a figure into the form of the drawing library.
fn figure(chart: &ChartSheet) -> Figure {
    let counted = chart.series.iter().all(|s| s.style == Style::Ecdf) && !chart.series.is_empty();
    let y = if counted { Axis::bare("fraction of all") } else { axis(&chart.y) };
    let mut figure =
        Figure::new(&chart.title, axis(&chart.x), y, chart.seed).caption(&chart.caption);
    if chart.series.iter().any(|s| s.points.len() > 100) {
        figure = figure.wide();
    }
    if let Some((n, what)) = &chart.rests_on {
        figure = figure.resting_on(*n, what);
    }
    let figure = figure.shading(chart.shaded.iter().map(|s| (s[0], s[1])));
    chart.series.iter().map(series).fold(figure, Figure::with)
}

fn axis(axis: &AxisSheet) -> Axis {
    let plain = match axis.unit.as_str() {
        "" => Axis::bare(&axis.label),
        "s" | "bit/s" | "B" => Axis::si(&axis.label, &axis.unit),
        unit => Axis::plain(&axis.label, unit),
    };
    if axis.log { plain.log() } else { plain }
}

fn series(sheet: &SeriesSheet) -> Series {
    let pairs = || sheet.points.iter().map(|p| (p[0], p[1])).collect::<Vec<_>>();
    let estimates = || {
        sheet.points.iter().enumerate().map(|(i, point)| {
            let (bounds, n) = sheet.bounds.get(i).copied().unwrap_or((None, 1));
            let interval = bounds.map(|[low, high]| Interval {
                low,
                high,
                level: LEVEL,
                kind: sheet.kind.into(),
            });
            (point[0], Estimate { value: point[1], n, interval, equal: false })
        })
    };
    let data = match sheet.style {
        Style::Line => Data::Line(pairs()),
        Style::Step | Style::Arrived => Data::Step(pairs()),
        Style::Scatter | Style::Lost => Data::Scatter(pairs()),
        Style::Ecdf => Data::Ecdf(sheet.points.iter().map(|p| p[1]).collect()),
        Style::Ribbon => Data::Ribbon(estimates().collect()),
        Style::Bars => {
            let names = sheet.names.iter().cloned();
            Data::Bars(names.zip(estimates().map(|(_, e)| e)).collect())
        }
    };
    let series = Series::new(&sheet.name, data);
    match sheet.style {
        Style::Arrived => series.look(Colour::Green, Marker::None),
        Style::Lost => series.look(Colour::Vermillion, Marker::Cross),
        _ => series,
    }
}
