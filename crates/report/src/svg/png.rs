//! A chart's SVG file as a PNG file, in builds with the feature `png`.
//!
//! The picture has the light theme, twice the size, and letters that come with the program: it is the same on every
//! machine.

use std::sync::{Arc, LazyLock};

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

use super::picture::FONT;

const SCALE: f32 = 2.0;

/// Draws a file of [`standalone`](super::standalone).
pub fn png(svg: &str) -> Option<Vec<u8>> {
    static FONTS: LazyLock<Arc<fontdb::Database>> = LazyLock::new(|| {
        let mut fonts = fontdb::Database::new();
        fonts.load_font_data(dejavu::sans_condensed::regular().to_vec());
        fonts.load_font_data(dejavu::sans_condensed::bold().to_vec());
        Arc::new(fonts)
    });
    let options = Options { font_family: FONT.to_owned(), fontdb: Arc::clone(&FONTS), ..Options::default() };
    let tree = Tree::from_str(svg, &options).expect("the chart is SVG");
    let size = tree.size().to_int_size();
    let pixels = |side: u32| (side as f32 * SCALE) as u32;
    let mut pixmap = Pixmap::new(pixels(size.width()), pixels(size.height())).expect("a chart has a size");
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixmap.as_mut());
    Some(pixmap.encode_png().expect("pixels can always be encoded"))
}

#[cfg(test)]
mod tests {
    use super::super::picture::tests::CHART;
    use super::super::standalone;
    use super::*;

    #[test]
    fn a_png_is_light_and_twice_as_large() {
        let png = png(&standalone(CHART, (100.0, 60.0))).unwrap();
        let pixmap = Pixmap::decode_png(&png).unwrap();
        assert_eq!((pixmap.width(), pixmap.height()), (264, 184));
        let colour = |x, y| {
            let pixel = pixmap.pixel(x, y).unwrap();
            (pixel.red(), pixel.green(), pixel.blue())
        };
        assert_eq!(colour(2, 2), (255, 255, 255));
        assert_eq!(colour(132, 92), (0xc9, 0x48, 0x00));
        let is_ink =
            |pixel: &resvg::tiny_skia::PremultipliedColorU8| pixel.red() < 0x60 && pixel.blue() < 0x70;
        assert!(pixmap.pixels().iter().any(is_ink), "no letters");
        assert_eq!(Some(png), super::png(&standalone(CHART, (100.0, 60.0))));
    }
}
