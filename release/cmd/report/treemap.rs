//! What takes how much room: rectangles in rectangles, families around ops around targets.

use crate::html::escape;
use std::fmt::Write as _;

/// A name and its size, or the sum of what is in it.
pub(super) struct Node {
    pub(super) name: String,
    pub(super) size: u64,
    /// What a pointer that rests on it is told.
    pub(super) title: String,
    pub(super) parts: Vec<Node>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Rect {
    x: f64,
    y: f64,
    w: f64,
    h: f64,
}

impl Rect {
    /// Without its edge, and without a line of text at the top.
    fn inside(self, edge: f64, top: f64) -> Self {
        let (w, h) = ((self.w - 2.0 * edge).max(0.0), (self.h - 2.0 * edge - top).max(0.0));
        Self { x: self.x + edge, y: self.y + edge + top, w, h }
    }
}

/// How the picture is drawn: as a page is wide, and as a phone is held. The style shows one of them.
const SHAPES: [(&str, f64, f64); 2] = [("wide", 1060.0, 560.0), ("narrow", 370.0, 640.0)];
/// The height of a name above its parts.
const LINE: f64 = 15.0;
/// What a letter takes, about.
const LETTER: f64 = 7.0;

/// Hues that are told apart, one family after the other.
const HUES: [u32; 9] = [18, 208, 140, 262, 340, 48, 180, 95, 300];

/// The picture, once in each shape.
pub(super) fn draw(families: &[Node]) -> String {
    SHAPES.map(|(name, w, h)| shape(families, name, Rect { x: 0.0, y: 0.0, w, h })).concat()
}

fn shape(families: &[Node], name: &str, whole: Rect) -> String {
    let Rect { w, h, .. } = whole;
    let mut svg = format!(
        "<svg class=\"map {name}\" viewBox=\"0 0 {w} {h}\" role=\"img\" aria-label=\"sizes by family, op and target\">\n"
    );
    for (i, (family, place)) in families.iter().zip(squarify(&sizes(families), whole)).enumerate() {
        let hue = HUES[i % HUES.len()];
        block(&mut svg, family, place, &format!("hsl({hue} 45% 50% / .28)"));
        let inner = place.inside(2.0, LINE);
        for (op, place) in family.parts.iter().zip(squarify(&sizes(&family.parts), inner)) {
            block(&mut svg, op, place, &format!("hsl({hue} 50% 50% / .35)"));
            let inner = place.inside(1.5, if fits(op, place) { LINE } else { 0.0 });
            for (target, place) in op.parts.iter().zip(squarify(&sizes(&op.parts), inner)) {
                block(&mut svg, target, place, &format!("hsl({hue} 60% 50% / .3)"));
            }
        }
    }
    svg + "</svg>\n"
}

fn sizes(nodes: &[Node]) -> Vec<u64> {
    nodes.iter().map(|node| node.size).collect()
}

/// Whether a name can stand at the top of its rectangle.
fn fits(node: &Node, place: Rect) -> bool {
    place.h > LINE + 2.0 && place.w > 26.0 && node.name.chars().count() as f64 * LETTER + 6.0 < place.w
}

fn block(svg: &mut String, node: &Node, Rect { x, y, w, h }: Rect, fill: &str) {
    let title = escape(&node.title);
    let _ = write!(
        svg,
        "<g><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\" fill=\"{fill}\"><title>{title}</title></rect>"
    );
    if fits(node, Rect { x, y, w, h }) {
        let _ = write!(svg, "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>", x + 4.0, y + 12.0, escape(&node.name));
    }
    *svg += "</g>\n";
}

/// Rectangles of these sizes, which come the largest first, as square as a row at a time allows.
fn squarify(sizes: &[u64], place: Rect) -> Vec<Rect> {
    let total: u64 = sizes.iter().sum();
    if total == 0 || place.w <= 0.0 || place.h <= 0.0 {
        return vec![Rect { w: 0.0, h: 0.0, ..place }; sizes.len()];
    }
    let scale = place.w * place.h / total as f64;
    let areas: Vec<f64> = sizes.iter().map(|size| *size as f64 * scale).collect();
    let (mut rest, mut done, mut at) = (place, Vec::new(), 0);
    while at < areas.len() {
        let side = rest.w.min(rest.h);
        let mut end = at + 1;
        while end < areas.len() && worst(&areas[at..=end], side) <= worst(&areas[at..end], side) {
            end += 1;
        }
        let row = &areas[at..end];
        let sum: f64 = row.iter().sum();
        let depth = if side > 0.0 { sum / side } else { 0.0 };
        let mut along = 0.0;
        for area in row {
            let length = if depth > 0.0 { area / depth } else { 0.0 };
            done.push(if rest.w >= rest.h {
                Rect { x: rest.x, y: rest.y + along, w: depth, h: length }
            } else {
                Rect { x: rest.x + along, y: rest.y, w: length, h: depth }
            });
            along += length;
        }
        rest = if rest.w >= rest.h {
            Rect { x: rest.x + depth, w: (rest.w - depth).max(0.0), ..rest }
        } else {
            Rect { y: rest.y + depth, h: (rest.h - depth).max(0.0), ..rest }
        };
        at = end;
    }
    done
}

/// The longest of the sides' ratios in a row.
fn worst(row: &[f64], side: f64) -> f64 {
    let sum: f64 = row.iter().sum();
    let ratio = |area: &f64| {
        let (depth, length) = (sum / side, area * side / sum);
        (depth / length).max(length / depth)
    };
    row.iter().filter(|area| **area > 0.0).map(ratio).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rectangles_fill_their_place_in_proportion_and_do_not_overlap() {
        let place = Rect { x: 10.0, y: 20.0, w: 600.0, h: 400.0 };
        let sizes = [600, 600, 400, 300, 200, 200, 100, 0];
        let all = squarify(&sizes, place);
        let area = |r: &Rect| r.w * r.h;
        for (rect, size) in all.iter().zip(sizes) {
            assert!((area(rect) - size as f64 * 100.0).abs() < 1e-6, "{rect:?}");
            let (right, bottom) = (rect.x + rect.w, rect.y + rect.h);
            assert!(rect.x >= 9.999 && rect.y >= 19.999 && right <= 610.001 && bottom <= 420.001, "{rect:?}");
        }
        for (i, a) in all.iter().enumerate() {
            for b in &all[i + 1..] {
                let apart = a.x + a.w <= b.x + 1e-6
                    || b.x + b.w <= a.x + 1e-6
                    || a.y + a.h <= b.y + 1e-6
                    || b.y + b.h <= a.y + 1e-6;
                assert!(apart, "{a:?} {b:?}");
            }
        }
        assert_eq!(squarify(&[], place), []);
        assert_eq!(squarify(&[0], place)[0].w, 0.0);
    }
}
