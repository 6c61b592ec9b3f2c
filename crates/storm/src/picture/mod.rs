//! A scenario's runs as a picture: latency, copies, maintenance and exposure over one axis of time.
//!
//! It has no scripts and no background of its own, and colours that can be read on light and dark.

mod axis;

use std::fmt::Write as _;

use self::axis::Axis;
use crate::measures::Second;
use crate::run::Storm;

const WIDTH: f64 = 960.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 30.0;
const PANEL: f64 = 130.0;
const GAP: f64 = 34.0;
const TOP: f64 = 66.0;

/// Points of a line; more cannot be seen.
const POINTS: usize = 440;

const COLOURS: [&str; 6] = ["#d1495b", "#2f7ed8", "#1f9d6b", "#c98500", "#8e5bd0", "#6b7785"];

/// One panel.
struct Panel {
    title: &'static str,
    of: fn(&Second) -> f64,
    /// Several seconds are one point: the worst of them, or their mean.
    worst: bool,
    scale: Scale,
}

#[derive(Clone, Copy)]
enum Scale {
    /// Milliseconds, logarithmic.
    Latency,
    /// Bytes per second.
    Rate,
    /// Shards.
    Count,
}

const PANELS: [Panel; 5] = [
    Panel { title: "p99 of requests", of: |s| s.p99_ms, worst: true, scale: Scale::Latency },
    Panel { title: "copies", of: |s| s.copied, worst: false, scale: Scale::Rate },
    Panel {
        title: "shards short of replicas",
        of: |s| s.short as f64,
        worst: true,
        scale: Scale::Count,
    },
    Panel {
        title: "shards with one replica left",
        of: |s| s.one_left as f64,
        worst: true,
        scale: Scale::Count,
    },
    Panel { title: "deferred maintenance", of: |s| s.maintained, worst: false, scale: Scale::Rate },
];

/// An SVG document.
pub fn draw(storm: &Storm) -> String {
    let all = || storm.variants.iter().flat_map(|o| &o.series);
    let panels: Vec<&Panel> =
        PANELS.iter().filter(|panel| all().any(|second| (panel.of)(second) > 0.0)).collect();
    let height = TOP + panels.len() as f64 * (PANEL + GAP) + 10.0;
    let mut svg = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"system-ui,sans-serif\" font-size=\"12\">\n<title>{}</title>\n\
         <style>text{{fill:#5b6470}}.grid{{stroke:#8b95a1;stroke-opacity:.35}}\
         .mark{{stroke:#8b95a1;stroke-dasharray:2 3}}path{{fill:none;stroke-width:1.6;\
         stroke-linejoin:round}}@media(prefers-color-scheme:dark){{text{{fill:#aab4c0}}}}</style>",
        escaped(&storm.title)
    );
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"18\" font-size=\"15\" font-weight=\"600\">{}</text>",
        escaped(&storm.title)
    );
    legend(&mut svg, storm);
    let end_s = all().map(|s| s.at_s).fold(1.0, f64::max);
    let time = Axis::time(end_s, LEFT, WIDTH - RIGHT);
    for (n, panel) in panels.iter().enumerate() {
        let top = TOP + n as f64 * (PANEL + GAP);
        draw_panel(&mut svg, storm, panel, &time, top);
    }
    svg.push_str("</svg>\n");
    svg
}

fn legend(svg: &mut String, storm: &Storm) {
    let mut x = LEFT;
    for (outcome, colour) in storm.variants.iter().zip(COLOURS.iter().cycle()) {
        let _ = writeln!(
            svg,
            "<path d=\"M{x:.0} 36h18\" stroke=\"{colour}\"/>\
             <text x=\"{:.0}\" y=\"40\">{}</text>",
            x + 24.0,
            escaped(&outcome.variant)
        );
        x += 48.0 + 7.0 * outcome.variant.chars().count() as f64;
    }
}

fn draw_panel(svg: &mut String, storm: &Storm, panel: &Panel, time: &Axis, top: f64) {
    let bottom = top + PANEL;
    let values = || storm.variants.iter().flat_map(|o| &o.series).map(panel.of);
    let most = values().fold(0.0, f64::max);
    let axis = match panel.scale {
        Scale::Latency => {
            let least = values().filter(|v| *v > 0.0).fold(f64::MAX, f64::min);
            Axis::latency(least, most, bottom, top)
        }
        Scale::Rate => Axis::rate(most, bottom, top),
        Scale::Count => Axis::count(most, bottom, top),
    };
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"{:.0}\" font-weight=\"600\">{}</text>",
        top - 6.0,
        panel.title
    );
    for (at, label) in &axis.ticks {
        let y = axis.place(*at);
        let _ = writeln!(
            svg,
            "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{:.0}\"/><text x=\"{:.0}\" y=\"{:.1}\" \
             text-anchor=\"end\">{label}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            y + 4.0
        );
    }
    for (at, label) in &time.ticks {
        let x = time.place(*at);
        let _ = writeln!(
            svg,
            "<path class=\"grid\" d=\"M{x:.1} {top:.0}V{bottom:.0}\"/><text x=\"{x:.1}\" \
             y=\"{:.0}\" text-anchor=\"middle\">{label}</text>",
            bottom + 14.0
        );
    }
    for event in &storm.events {
        let x = time.place(event.at_s);
        let _ = writeln!(
            svg,
            "<path class=\"mark\" d=\"M{x:.1} {top:.0}V{bottom:.0}\"><title>{}</title></path>",
            escaped(&event.what)
        );
    }
    if matches!(panel.scale, Scale::Latency) {
        let target = storm.variants.first().map_or(0.0, |o| o.target_ms);
        let y = axis.place(target);
        let _ = writeln!(
            svg,
            "<path class=\"mark\" d=\"M{LEFT} {y:.1}H{:.0}\"/><text x=\"{:.0}\" y=\"{:.1}\" \
             text-anchor=\"end\" font-size=\"10\">target</text>",
            WIDTH - RIGHT,
            WIDTH - RIGHT,
            y - 3.0
        );
    }
    for (outcome, colour) in storm.variants.iter().zip(COLOURS.iter().cycle()) {
        let line = line(&outcome.series, panel, time, &axis);
        let _ = writeln!(svg, "<path d=\"{line}\" stroke=\"{colour}\"/>");
    }
}

/// A line through a series.
fn line(series: &[Second], panel: &Panel, time: &Axis, axis: &Axis) -> String {
    let together = series.len().div_ceil(POINTS).max(1);
    let mut path = String::new();
    for seconds in series.chunks(together) {
        let values = seconds.iter().map(panel.of);
        let value = if panel.worst {
            values.fold(0.0, f64::max)
        } else {
            values.sum::<f64>() / seconds.len() as f64
        };
        let at_s = seconds.last().map_or(0.0, |s| s.at_s);
        let command = if path.is_empty() { 'M' } else { 'L' };
        let _ = write!(path, "{command}{:.1} {:.1}", time.place(at_s), axis.place(value));
    }
    path
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use crate::{Scenario, simulate};

    #[test]
    fn it_draws_what_there_is_and_names_what_it_draws() {
        let text = "title A & <B>\nrun 90s\n[cluster]\nnodes 4\nshards 8\ndata 8GB\nlink 1Gbit/s\n\
            detection 1s\nrestore_delay 1s\n[traffic]\nutilisation 30%\np99_idle 2ms\n\
            [controls]\ntarget 8ms\n[events]\nat 20s lose n2\n[variant a]\n[variant b]\nlaw off\n";
        let storm = simulate(&Scenario::parse(text).unwrap(), 1).unwrap();
        let svg = super::draw(&storm);
        assert!(svg.contains("A &amp; &lt;B&gt;") && svg.contains("<title>lose n2</title>"));
        for title in ["p99 of requests", "copies", "shards short of replicas"] {
            assert!(svg.contains(title), "{title}");
        }
        // Nothing was put off, so there is nothing to draw.
        assert!(!svg.contains("deferred maintenance") && !svg.contains("NaN"));
        assert!(!svg.contains("<script") && svg.trim_end().ends_with("</svg>"));
        assert_eq!(svg.matches("stroke=\"#").count(), 2 + 2 * 3);
    }
}
