//! Charts: rectangles, dots and words, drawn once as SVG for pages and as pixels for pictures.

mod font;
pub(crate) mod operations;
pub(crate) mod peers;
mod pixels;
pub(crate) mod round;

pub(crate) use font::{Face, font_css};
pub(crate) use pixels::png;

/// Width of all charts, in pixels.
pub(crate) const WIDTH: f64 = 860.0;
/// Sizes of letters.
pub(crate) const SIZE: f64 = 12.0;
pub(crate) const SMALL: f64 = 10.5;
pub(crate) const LARGE: f64 = 15.0;

/// A colour by its purpose: pages have a light one and a dark one for each.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ink {
    Paper,
    Text,
    /// Words that explain.
    Muted,
    /// Thin lines.
    Rule,
    /// The limit behind a bar.
    Limit,
    /// Bars of one report among several, the first of which is also ours beside others.
    Series(usize),
    /// Bars of those that ours stands beside.
    Other,
    /// Marks of figures to be doubted.
    Warning,
}

/// The names of inks in pages, and their colours on light and on dark paper.
pub(crate) const INKS: [(&str, Ink, u32, u32); 11] = [
    ("paper", Ink::Paper, 0xff_ff_ff, 0x15_17_1b),
    ("text", Ink::Text, 0x1c_1c_1c, 0xe7_e5_e1),
    ("muted", Ink::Muted, 0x6a_6a_6a, 0x9d_9c_99),
    ("rule", Ink::Rule, 0xdc_dc_d8, 0x35_39_40),
    ("limit", Ink::Limit, 0xe9_e8_e3, 0x2b_2f_36),
    ("series0", Ink::Series(0), 0x1f_5f_99, 0x6c_ad_e8),
    ("series1", Ink::Series(1), 0xd0_7c_1f, 0xe9_a5_5f),
    ("series2", Ink::Series(2), 0x48_8a_55, 0x85_c4_92),
    ("series3", Ink::Series(3), 0x86_5b_a3, 0xbf_9d_d9),
    ("other", Ink::Other, 0x9b_9a_95, 0x77_79_7d),
    ("warning", Ink::Warning, 0xb3_26_1e, 0xff_8a_80),
];

impl Ink {
    /// Returns the ink of a report among several. There are four, which repeat.
    pub(crate) fn series(index: usize) -> Self {
        Self::Series(index % 4)
    }

    fn entry(self) -> (&'static str, u32) {
        let found = INKS.iter().find(|(_, ink, ..)| *ink == self);
        found.map_or(("text", 0), |&(name, _, light, _)| (name, light))
    }
}

/// The end of a text that its place is of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// Something drawn. Places are in pixels, y grows downwards; those of texts are on the baseline.
enum Mark {
    Rect {
        place: [f64; 4],
        ink: Ink,
    },
    /// A rectangle of which only the border is drawn.
    Hollow {
        place: [f64; 4],
        ink: Ink,
    },
    Dot {
        centre: [f64; 2],
        radius: f64,
        ink: Ink,
    },
    Text {
        place: [f64; 2],
        size: f64,
        style: (Face, Anchor, Ink),
        text: String,
    },
}

/// A chart of [`WIDTH`] pixels.
pub(crate) struct Chart {
    /// Says what it shows, for those who cannot see it.
    title: String,
    height: f64,
    marks: Vec<Mark>,
}

impl Chart {
    pub(crate) fn new(title: &str) -> Self {
        Self { title: title.into(), height: 0.0, marks: vec![] }
    }

    /// Returns the pixels used so far.
    pub(crate) fn height(&self) -> f64 {
        self.height
    }

    /// Adds space at the bottom.
    pub(crate) fn grow(&mut self, pixels: f64) {
        self.height += pixels;
    }

    /// Draws a rectangle: left, top, width and height.
    pub(crate) fn rect(&mut self, place: [f64; 4], ink: Ink) {
        self.marks.push(Mark::Rect { place, ink });
    }

    /// Draws the border of a rectangle.
    pub(crate) fn hollow(&mut self, place: [f64; 4], ink: Ink) {
        self.marks.push(Mark::Hollow { place, ink });
    }

    /// Draws a dot.
    pub(crate) fn dot(&mut self, centre: [f64; 2], radius: f64, ink: Ink) {
        self.marks.push(Mark::Dot { centre, radius, ink });
    }

    /// Writes a text of the usual size.
    pub(crate) fn text(&mut self, place: [f64; 2], anchor: Anchor, ink: Ink, text: &str) {
        self.write(place, SIZE, (Face::Regular, anchor, ink), text);
    }

    /// Writes a text of any size and face.
    pub(crate) fn write(
        &mut self,
        place: [f64; 2],
        size: f64,
        style: (Face, Anchor, Ink),
        text: &str,
    ) {
        self.marks.push(Mark::Text { place, size, style, text: text.into() });
    }

    /// Writes a heading, and leaves its room.
    pub(crate) fn heading(&mut self, text: &str) {
        let place = [0.0, self.height + LARGE];
        self.write(place, LARGE, (Face::Semibold, Anchor::Start, Ink::Text), text);
        self.grow(LARGE + 9.0);
    }

    /// Writes lines of small text that explain, broken where the width ends.
    pub(crate) fn explain(&mut self, text: &str) {
        let mut line = String::new();
        for word in text.split(' ').chain([""]) {
            let longer = format!("{line}{word} ");
            let is_full = Face::Regular.width(longer.trim_end(), SMALL) > WIDTH;
            if is_full || word.is_empty() {
                let place = [0.0, self.height + SMALL];
                let style = (Face::Regular, Anchor::Start, Ink::Muted);
                self.write(place, SMALL, style, line.trim_end());
                self.grow(15.0);
                line = format!("{word} ");
            } else {
                line = longer;
            }
        }
        self.grow(8.0);
    }

    /// Returns it as an element of a page, whose classes give inks their colours.
    pub(crate) fn svg(&self) -> String {
        let title = escape(&self.title);
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" aria-label=\"{title}\">\n",
            self.height
        );
        for mark in &self.marks {
            svg += &match mark {
                Mark::Rect { place: [x, y, width, height], ink } => format!(
                    "<rect class=\"{}\" x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" \
                     height=\"{height:.2}\"/>",
                    ink.entry().0
                ),
                Mark::Hollow { place: [x, y, width, height], ink } => format!(
                    "<rect class=\"hollow {}\" x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" \
                     height=\"{height:.2}\"/>",
                    ink.entry().0
                ),
                Mark::Dot { centre: [x, y], radius, ink } => format!(
                    "<circle class=\"{}\" cx=\"{x:.2}\" cy=\"{y:.2}\" r=\"{radius}\"/>",
                    ink.entry().0
                ),
                Mark::Text { place: [x, y], size, style: (face, anchor, ink), text } => format!(
                    "<text class=\"{}{}{}\" x=\"{x:.2}\" y=\"{y:.2}\" font-size=\"{size}\">{}</text>",
                    ink.entry().0,
                    if *face == Face::Semibold { " strong" } else { "" },
                    match anchor {
                        Anchor::Start => "",
                        Anchor::Middle => " middle",
                        Anchor::End => " end",
                    },
                    escape(text)
                ),
            };
            svg.push('\n');
        }
        svg + "</svg>\n"
    }
}

/// Returns a text as it stands in a page.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            // No control character may stand in a page.
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Returns a time in three digits and a unit that suits it.
pub(crate) fn time(seconds: f64) -> String {
    let (number, unit) = match seconds {
        s if s >= 0.9995 => (s, "s"),
        s if s >= 0.9995e-3 => (s * 1e3, "ms"),
        s if s >= 0.9995e-6 => (s * 1e6, "µs"),
        s => (s * 1e9, "ns"),
    };
    format!("{} {unit}", super::table::number(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_from_files_cannot_become_markup() {
        let mut chart = Chart::new("a \"b\" <c>");
        chart.text([0.0, 0.0], Anchor::End, Ink::Text, "</svg><script>&\u{7}");
        let svg = chart.svg();
        assert!(svg.contains("a &quot;b&quot; &lt;c&gt;"), "{svg}");
        assert!(svg.contains("&lt;/svg&gt;&lt;script&gt;&amp; </text>"), "{svg}");
    }

    #[test]
    fn every_ink_has_a_name_and_colours() {
        let inks = [Ink::Paper, Ink::Text, Ink::Muted, Ink::Rule, Ink::Limit, Ink::Other];
        let series = (0..9).map(Ink::series);
        for ink in inks.into_iter().chain(series).chain([Ink::Warning]) {
            assert!(INKS.iter().any(|(_, found, ..)| *found == ink));
        }
    }

    #[test]
    fn times_have_units() {
        let cases = [(2.5, "2.50 s"), (0.0134, "13.4 ms"), (94e-6, "94.0 µs"), (0.8e-6, "800 ns")];
        for (seconds, text) in cases {
            assert_eq!(time(seconds), text);
        }
        assert_eq!(time(0.9999e-3), "1.00 ms");
    }
}
