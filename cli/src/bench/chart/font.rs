//! The letters of charts: Inter, whose digits are of one width, so that pictures need no font of the system.

use std::sync::LazyLock;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use tiny_skia::{Path, PathBuilder};
use ttf_parser::{Face as Outlines, OutlineBuilder};

static REGULAR: &[u8] = include_bytes!("../../../data/fonts/inter-regular.ttf");
static SEMIBOLD: &[u8] = include_bytes!("../../../data/fonts/inter-semibold.ttf");

/// The outlines of both faces; none of a file that is no font, which the tests would find.
static OUTLINES: LazyLock<[Option<Outlines<'static>>; 2]> =
    LazyLock::new(|| [REGULAR, SEMIBOLD].map(|bytes| Outlines::parse(bytes, 0).ok()));

/// A weight of letters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Face {
    Regular,
    Semibold,
}

impl Face {
    fn outlines(self) -> Option<&'static Outlines<'static>> {
        OUTLINES[usize::from(self == Self::Semibold)].as_ref()
    }

    /// Returns the width of a text of letters of `size` pixels.
    pub(crate) fn width(self, text: &str, size: f64) -> f64 {
        let Some(outlines) = self.outlines() else { return 0.0 };
        let advances = text.chars().map(|letter| advance(outlines, letter));
        advances.sum::<f64>() * size / f64::from(outlines.units_per_em())
    }

    /// Returns the outline of a text that begins at a place on its baseline.
    pub(super) fn path(self, text: &str, size: f64, [x, y]: [f64; 2]) -> Option<Path> {
        let outlines = self.outlines()?;
        let scale = size / f64::from(outlines.units_per_em());
        let mut pen = Pen { path: PathBuilder::new(), at: [x, y], scale };
        for letter in text.chars() {
            if let Some(glyph) = outlines.glyph_index(letter) {
                outlines.outline_glyph(glyph, &mut pen);
            }
            pen.at[0] += advance(outlines, letter) * scale;
        }
        pen.path.finish()
    }
}

/// Returns how far a letter moves the pen, in the font's units. Letters that it lacks leave a gap.
fn advance(outlines: &Outlines<'_>, letter: char) -> f64 {
    let glyph = outlines.glyph_index(letter);
    let advance = glyph.and_then(|glyph| outlines.glyph_hor_advance(glyph));
    f64::from(advance.unwrap_or(outlines.units_per_em() / 2))
}

/// Draws outlines, whose y grows upwards, at a place of a picture.
struct Pen {
    path: PathBuilder,
    at: [f64; 2],
    scale: f64,
}

impl Pen {
    fn place(&self, x: f32, y: f32) -> (f32, f32) {
        let [left, base] = self.at;
        let (x, y) = (left + f64::from(x) * self.scale, base - f64::from(y) * self.scale);
        (x as f32, y as f32)
    }
}

impl OutlineBuilder for Pen {
    fn move_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.place(x, y);
        self.path.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.place(x, y);
        self.path.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        let ((x1, y1), (x, y)) = (self.place(x1, y1), self.place(x, y));
        self.path.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        let ((x1, y1), (x2, y2)) = (self.place(x1, y1), self.place(x2, y2));
        let (x, y) = self.place(x, y);
        self.path.cubic_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.path.close();
    }
}

/// Returns the rules by which a page has these letters without another file.
pub(crate) fn font_css() -> String {
    let rule = |weight: u32, bytes| {
        format!(
            "@font-face{{font-family:Inter;font-weight:{weight};\
             src:url(data:font/ttf;base64,{})}}\n",
            STANDARD.encode(bytes)
        )
    };
    rule(400, REGULAR) + &rule(600, SEMIBOLD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_faces_have_what_charts_say() {
        for face in [Face::Regular, Face::Semibold] {
            let outlines = face.outlines().unwrap();
            for letter in (' '..='~').chain("µ·²×–…".chars()) {
                assert!(outlines.glyph_index(letter).is_some(), "{letter}");
            }
            assert!(face.path("90 %", 12.0, [0.0, 12.0]).is_some());
        }
    }

    #[test]
    fn digits_are_of_one_width() {
        let width = |text| Face::Regular.width(text, 12.0);
        assert_eq!(width("1111"), width("8080"));
        assert!(width("1") > 6.0 && width("ii") < width("mm"));
    }
}
