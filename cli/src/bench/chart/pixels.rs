//! Charts as pictures.

use tiny_skia::{Color, FillRule, Paint, Path, PathBuilder, Pixmap, Rect, Stroke, Transform};

use super::{Anchor, Chart, INKS, Ink, Mark, WIDTH};
use crate::failure::Failure;

/// Pixels of a picture for one of a chart, so that letters are sharp on dense screens.
const DENSITY: f32 = 2.0;
/// Space around and between charts, in a chart's pixels.
const MARGIN: f64 = 24.0;
/// The tallest picture, in a chart's pixels.
const TALLEST: f64 = 20_000.0;

/// Draws charts below each other on light paper, and returns the PNG file.
///
/// # Errors
/// They are too tall for a picture.
pub(crate) fn png(charts: &[Chart]) -> Result<Vec<u8>, Failure> {
    let height = MARGIN + charts.iter().map(|chart| chart.height + MARGIN).sum::<f64>();
    let [width, pixels] = [WIDTH + 2.0 * MARGIN, height].map(|x| (x * f64::from(DENSITY)) as u32);
    let picture = (height <= TALLEST).then(|| Pixmap::new(width, pixels)).flatten();
    let too_tall = || Failure::Work("there is too much for one picture; --report holds it".into());
    let mut picture = picture.ok_or_else(too_tall)?;
    picture.fill(colour(Ink::Paper));
    let mut top = MARGIN;
    for chart in charts {
        let transform =
            Transform::from_scale(DENSITY, DENSITY).pre_translate(MARGIN as f32, top as f32);
        chart.marks.iter().for_each(|mark| draw(&mut picture, mark, transform));
        top += chart.height + MARGIN;
    }
    picture.encode_png().map_err(|why| Failure::Work(format!("a picture: {why}")))
}

fn draw(picture: &mut Pixmap, mark: &Mark, transform: Transform) {
    let (path, ink) = match mark {
        Mark::Rect { place, ink } | Mark::Hollow { place, ink } => (rectangle(place), *ink),
        Mark::Dot { centre: [x, y], radius, ink } => {
            (PathBuilder::from_circle(*x as f32, *y as f32, *radius as f32), *ink)
        }
        Mark::Text { place: [x, y], size, style: (face, anchor, ink), text } => {
            let before = match anchor {
                Anchor::Start => 0.0,
                Anchor::Middle => 0.5,
                Anchor::End => 1.0,
            };
            let x = x - before * face.width(text, *size);
            (face.path(text, *size, [x, *y]), *ink)
        }
    };
    // What has no extent leaves no path.
    let Some(path) = path else { return };
    let mut paint = Paint::default();
    paint.set_color(colour(ink));
    if let Mark::Hollow { .. } = mark {
        picture.stroke_path(&path, &paint, &Stroke::default(), transform, None);
    } else {
        picture.fill_path(&path, &paint, FillRule::Winding, transform, None);
    }
}

fn rectangle(place: &[f64; 4]) -> Option<Path> {
    let [x, y, width, height] = place.map(|x| x as f32);
    Rect::from_xywh(x, y, width, height).map(PathBuilder::from_rect)
}

/// Returns an ink's colour on light paper.
fn colour(ink: Ink) -> Color {
    let light =
        INKS.iter().find(|(_, found, ..)| *found == ink).map_or(0, |(_, _, light, _)| *light);
    let [_, red, green, blue] = light.to_be_bytes();
    Color::from_rgba8(red, green, blue, 255)
}
