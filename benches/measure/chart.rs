//! Charts as SVG, readable on light and dark pages: they have a background of their own, and colours for each.

use std::fmt::Write as _;

const WIDTH: f64 = 860.0;
const STYLE: &str = "<style>
.page{fill:#ffffff}.text{fill:#1f2328}.muted{fill:#59636e}.grid{stroke:#d8dee4;stroke-width:1}
.a{fill:#0969da;stroke:#0969da}.b{fill:#8c959f;stroke:#8c959f}.c{fill:#bc4c00;stroke:#bc4c00}.d{fill:#1a7f37;stroke:#1a7f37}
.line{fill:none;stroke-width:2}.range{stroke-width:3;stroke-linecap:round;opacity:.45}
@media(prefers-color-scheme:dark){
.page{fill:#0d1117}.text{fill:#e6edf3}.muted{fill:#9198a1}.grid{stroke:#30363d}
.a{fill:#58a6ff;stroke:#58a6ff}.b{fill:#8b949e;stroke:#8b949e}.c{fill:#f0883e;stroke:#f0883e}.d{fill:#3fb950;stroke:#3fb950}
.line{fill:none}}
</style>";

/// One row of a [`DotChart`]: a median, and the range that it is from.
pub struct DotRow {
    pub label: String,
    /// Least, median, most; more than 0.
    pub range: [f64; 3],
    /// Whether this is what the chart is about.
    pub ours: bool,
}

/// Medians with their ranges, one in a row, on a logarithmic axis.
pub struct DotChart<'a> {
    pub title: &'a str,
    /// What the axis shows, and which end of it is good.
    pub axis: &'a str,
    pub rows: Vec<DotRow>,
}

impl DotChart<'_> {
    pub fn svg(&self) -> String {
        const ROW: f64 = 24.0;
        const TOP: f64 = 64.0;
        let bottom = TOP + ROW * self.rows.len() as f64;
        let axis = LogAxis::over(self.rows.iter().flat_map(|row| row.range), 280.0, WIDTH - 110.0);
        let mut svg = begin(self.title, self.axis, bottom + 34.0);
        for tick in axis.ticks() {
            let x = axis.place(tick);
            line(&mut svg, "grid", (x, TOP - 8.0), (x, bottom));
            text(&mut svg, "muted", (x, bottom + 18.0), "middle", &short(tick));
        }
        for (at, row) in self.rows.iter().enumerate() {
            let y = TOP + ROW * at as f64 + ROW / 2.0;
            let class = if row.ours { "a" } else { "b" };
            let [least, middle, most] = row.range.map(|value| axis.place(value));
            text(&mut svg, "text", (268.0, y + 4.5), "end", &row.label);
            line(&mut svg, &format!("{class} range"), (least, y), (most, y));
            dot(&mut svg, class, (middle, y));
            text(&mut svg, "text", (WIDTH - 20.0, y + 4.5), "end", &short(row.range[1]));
        }
        svg + "</svg>\n"
    }
}

/// Lines over a logarithmic axis, from 0 upwards.
pub struct LineChart<'a> {
    pub title: &'a str,
    /// What the lines show; the end of the title.
    pub shows: &'a str,
    /// What lies along the lower axis.
    pub axis: &'a str,
    /// A name, and its points.
    pub series: Vec<(String, Vec<(f64, f64)>)>,
}

impl LineChart<'_> {
    pub fn svg(&self) -> String {
        const TOP: f64 = 92.0;
        const BOTTOM: f64 = 330.0;
        let points = || self.series.iter().flat_map(|(_, points)| points.iter());
        let along = LogAxis::over(points().map(|point| point.0), 90.0, WIDTH - 60.0);
        let most = points().map(|point| point.1).fold(f64::MIN_POSITIVE, f64::max);
        let step = round_step(most / 5.0);
        let top = (most / step).ceil() * step;
        let height = |value: f64| BOTTOM - (BOTTOM - TOP) * value / top;
        let mut svg = begin(self.title, self.shows, BOTTOM + 50.0);
        for mark in (0..).map(|n| f64::from(n) * step).take_while(|mark| *mark <= top * 1.001) {
            line(&mut svg, "grid", (90.0, height(mark)), (WIDTH - 60.0, height(mark)));
            text(&mut svg, "muted", (80.0, height(mark) + 4.5), "end", &short(mark));
        }
        for tick in along.ticks() {
            text(&mut svg, "muted", (along.place(tick), BOTTOM + 18.0), "middle", &short(tick));
        }
        text(&mut svg, "muted", (f64::midpoint(90.0, WIDTH - 60.0), BOTTOM + 38.0), "middle", self.axis);
        for (at, (name, points)) in self.series.iter().enumerate() {
            let class = ["a", "c", "d", "b"][at % 4];
            let legend = 96.0 + 190.0 * at as f64;
            dot(&mut svg, class, (legend, 70.0));
            text(&mut svg, "text", (legend + 12.0, 74.5), "start", name);
            let path: Vec<_> =
                points.iter().map(|(x, y)| format!("{:.1},{:.1}", along.place(*x), height(*y))).collect();
            // Writing to a string cannot fail.
            let _ = writeln!(svg, "<polyline class=\"{class} line\" points=\"{}\"/>", path.join(" "));
            for (x, y) in points {
                dot(&mut svg, class, (along.place(*x), height(*y)));
            }
        }
        svg + "</svg>\n"
    }
}

/// A logarithmic axis from one place to another.
struct LogAxis {
    least: f64,
    most: f64,
    from: f64,
    to: f64,
}

impl LogAxis {
    fn over(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (least, most) = values
            .filter(|value| *value > 0.0)
            .fold((f64::MAX, f64::MIN_POSITIVE), |(least, most), value| (least.min(value), most.max(value)));
        // One value, or none, has room around it.
        let (least, most) = if least < most { (least, most) } else { (most / 2.0, most * 2.0) };
        Self { least: least.log10(), most: most.log10(), from, to }
    }

    fn place(&self, value: f64) -> f64 {
        let share = (value.max(f64::MIN_POSITIVE).log10() - self.least) / (self.most - self.least);
        self.from + (self.to - self.from) * share.clamp(0.0, 1.0)
    }

    /// Powers of ten, or 1, 2 and 5 of each where there are few.
    fn ticks(&self) -> Vec<f64> {
        let steps: &[f64] = if self.most - self.least > 2.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let powers = self.least.floor() as i32..=self.most.ceil() as i32;
        let all = powers.flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)));
        let slack = 0.002;
        all.filter(|tick| (self.least - slack..=self.most + slack).contains(&tick.log10())).collect()
    }
}

/// 1, 2 or 5 times a power of ten, and not less than this.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|step| step * power).into_iter().find(|step| *step >= least).unwrap_or(power)
}

/// A number as one reads it: `1.2k`, `0.031`.
fn short(value: f64) -> String {
    let trimmed = |text: String| {
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
    };
    match value {
        0.0 => "0".into(),
        v if v >= 1e6 => format!("{}M", trimmed(format!("{:.1}", v / 1e6))),
        v if v >= 1e4 => format!("{}k", trimmed(format!("{:.0}", v / 1e3))),
        v if v >= 1e3 => format!("{}k", trimmed(format!("{:.1}", v / 1e3))),
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => trimmed(format!("{v:.1}")),
        v if v >= 1.0 => trimmed(format!("{v:.2}")),
        v => trimmed(format!("{v:.digits$}", digits = (1.0 - v.log10().floor()) as usize)),
    }
}

fn begin(title: &str, below: &str, height: f64) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\" role=\"img\">\n<title>{}</title>\n{STYLE}\n\
         <rect class=\"page\" width=\"100%\" height=\"100%\" rx=\"8\"/>\n\
         <text class=\"text\" x=\"20\" y=\"26\" font-size=\"15\" font-weight=\"600\">{}</text>\n",
        escaped(title),
        escaped(title)
    );
    text(&mut svg, "muted", (20.0, 45.0), "start", below);
    svg
}

fn text(svg: &mut String, class: &str, (x, y): (f64, f64), anchor: &str, words: &str) {
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(
        svg,
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
        escaped(words)
    );
}

fn line(svg: &mut String, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
    let _ = writeln!(svg, "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>");
}

fn dot(svg: &mut String, class: &str, (x, y): (f64, f64)) {
    let _ = writeln!(svg, "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\"/>");
}

fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}
