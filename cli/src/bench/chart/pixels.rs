//! Charts as pictures.

use std::collections::{BTreeMap, BTreeSet};

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
    encode(&picture).map_err(|why| Failure::Work(format!("a picture: {why}")))
}

/// Returns a picture's file: by the numbers of its colours, some hundred for the inks and their edges, which takes half
/// the bytes; by the colours themselves where they are too many for that.
fn encode(picture: &Pixmap) -> Result<Vec<u8>, png::EncodingError> {
    // Nothing shows through.
    let colours =
        || picture.pixels().iter().map(|pixel| [pixel.red(), pixel.green(), pixel.blue()]);
    let palette: BTreeMap<[u8; 3], u8> =
        colours().collect::<BTreeSet<_>>().into_iter().zip(0..=u8::MAX).collect();
    let numbers: Option<Vec<u8>> = colours().map(|colour| palette.get(&colour).copied()).collect();
    let mut file = vec![];
    let mut encoder = png::Encoder::new(&mut file, picture.width(), picture.height());
    encoder.set_compression(png::Compression::High);
    let pixels = match numbers {
        Some(numbers) => {
            encoder.set_color(png::ColorType::Indexed);
            encoder.set_palette(palette.into_keys().flatten().collect::<Vec<_>>());
            encoder.set_filter(png::Filter::NoFilter);
            numbers
        }
        None => {
            encoder.set_color(png::ColorType::Rgb);
            colours().flatten().collect()
        }
    };
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels)?;
    writer.finish()?;
    Ok(file)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the size of a file's picture, and its pixels' colours.
    fn decode(file: &[u8]) -> ([u32; 2], Vec<u8>) {
        let mut decoder = png::Decoder::new(std::io::Cursor::new(file));
        decoder.set_transformations(png::Transformations::EXPAND);
        let mut reader = decoder.read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        ([info.width, info.height], pixels)
    }

    #[test]
    fn a_picture_has_what_the_chart_has() {
        let mut chart = Chart::new("a bar");
        chart.grow(50.0);
        chart.rect([0.0, 10.0, 100.0, 20.0], Ink::Series(0));
        chart.text([0.0, 48.0], Anchor::Start, Ink::Text, "Ciphergram");
        let Ok(file) = png(&[chart]) else { panic!("no picture") };
        let (size, pixels) = decode(&file);
        assert_eq!(size, [2 * (860 + 48), 2 * (50 + 48)]);
        let row = 3 * size[0] as usize;
        let pixel = |x: usize, y: usize| &pixels[2 * y * row + 6 * x..][..3];
        assert_eq!(pixel(24 + 50, 24 + 20), [0x1f, 0x5f, 0x99]);
        assert_eq!(pixel(24 + 101, 24 + 20), [0xff; 3]);
        let letters = (0..size[0] as usize / 2).filter(|x| pixel(*x, 24 + 44) != [0xff; 3]).count();
        assert!((5..200).contains(&letters), "{letters}");
    }

    #[test]
    fn many_colours_are_kept() {
        let mut picture = Pixmap::new(32, 32).unwrap();
        for (index, pixel) in picture.pixels_mut().iter_mut().enumerate() {
            *pixel = Color::from_rgba8(index as u8, (index / 256) as u8, 7, 255)
                .premultiply()
                .to_color_u8();
        }
        let (_, pixels) = decode(&encode(&picture).unwrap());
        assert_eq!(pixels[3 * 300..][..3], [44, 1, 7]);
        assert_eq!(pixels.len(), 3 * 1024);
    }

    #[test]
    fn too_much_for_a_picture_is_an_error() {
        let mut chart = Chart::new("tall");
        chart.grow(TALLEST);
        assert!(png(&[chart]).is_err());
    }
}
