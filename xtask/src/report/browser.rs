//! A report in a real browser without a window, narrow and wide, light and dark.
//!
//! The browser opens a copy of the page with a probe at its end, a script that examines the finished page. The copy
//! lies in a frame, because a browser's own window cannot be as narrow as a phone. Owns the browser's command line
//! and the conditions on the probe's findings.

use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};
use base::Nanos;
use serde::Deserialize;
use sys::process::{Program, find_program};

const PROBE: &str = include_str!("probe.js");
/// The page around the frame, which keeps the probe's message.
const AROUND: &str = include_str!("around.html");
const TICK: Nanos = Nanos::from_millis(20);
/// A phone, and a desk.
const WIDTHS_PX: [u32; 2] = [400, 1600];
/// Letters smaller than this cannot be read.
const LETTERS_MIN_PX: f64 = 9.0;
/// WCAG 2.2, 1.4.6: enhanced contrast of text.
const CONTRAST_MIN: f64 = 7.0;

/// The findings of the probe.
#[derive(Debug, Deserialize)]
struct Probe {
    width: u32,
    overflow: i32,
    figures: usize,
    hidden: Vec<String>,
    letters_px: Option<f64>,
    silent: Vec<String>,
    astray: Vec<String>,
    light: Theme,
    dark: Theme,
}

#[derive(Debug, Deserialize)]
struct Theme {
    paper: f64,
    contrast: f64,
}

/// Opens the page at each width, and checks the probe's findings. The charts are drawn and legible, and nothing
/// reaches over the page's edge. The page is light and dark, its script reads values out, and its console stays
/// empty. Without chromium it prints a skip. Blocks.
///
/// # Errors
/// The first condition that does not hold.
pub fn check(page: &Path, figures: usize) -> anyhow::Result<()> {
    let Some(chromium) = find_program("chromium") else {
        println!("skipped: chromium is not installed, so nobody has looked at the report");
        return Ok(());
    };
    for width in WIDTHS_PX {
        let probe = look(&chromium, page, width)?;
        probe.judge(width, figures).with_context(|| format!("{}, {width} px wide", page.display()))?;
    }
    println!("chromium shows all {figures} figures at {WIDTHS_PX:?} px in both themes; its console is empty");
    Ok(())
}

fn look(chromium: &Path, page: &Path, width: u32) -> anyhow::Result<Probe> {
    let folder = tempfile::tempdir().context("cannot make a folder for the browser")?;
    let text = fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))?;
    let copy = folder.path().join("page.html");
    fs::write(&copy, text.replacen("</body>", &format!("<script>\n{PROBE}</script>\n</body>"), 1))?;
    let around = folder.path().join("around.html");
    fs::write(&around, AROUND.replace("WIDTH", &width.to_string()))?;
    let program = Program::new(chromium)
        .arguments(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"])
        .arguments(["--virtual-time-budget=2000", "--dump-dom"])
        .arguments([format!("--window-size={},1000", width + 100)])
        .arguments([format!("--user-data-dir={}", folder.path().join("profile").display())])
        .arguments([format!("file://{}", around.display())]);
    let output = program.start().context("cannot start chromium")?.output(TICK, || true)?;
    let said = String::from_utf8_lossy(&output.stderr);
    if let Some(line) = said.lines().find(|line| line.contains("CONSOLE")) {
        anyhow::bail!("the report's script complains: {line}");
    }
    let dom = String::from_utf8_lossy(&output.stdout);
    let (_, rest) = dom.split_once("data-probe=\"").context("the page's script did not come to its end")?;
    let (probe, _) = rest.split_once('"').context("the browser's answer is cut short")?;
    serde_json::from_str(&probe.replace("&quot;", "\"")).context("the probe's findings cannot be read")
}

impl Probe {
    fn judge(&self, width: u32, figures: usize) -> anyhow::Result<()> {
        ensure!(self.width == width, "the browser made the page {} px wide", self.width);
        ensure!(self.overflow <= 0, "the page reaches {} px over its edge", self.overflow);
        ensure!(self.figures == figures, "{} of {figures} figures have a chart", self.figures);
        ensure!(self.hidden.is_empty(), "figures without a visible chart: {}", self.hidden.join(", "));
        let letters = self.letters_px.unwrap_or(LETTERS_MIN_PX);
        ensure!(letters >= LETTERS_MIN_PX, "letters of {letters:.1} px in a chart");
        ensure!(self.silent.is_empty(), "charts without a read-out: {}", self.silent.join(", "));
        ensure!(self.astray.is_empty(), "charts whose marks lead nowhere: {}", self.astray.join(", "));
        ensure!(self.light.paper > 0.7 && self.dark.paper < 0.1, "light and dark look alike: {self:?}");
        let contrast = self.light.contrast.min(self.dark.contrast);
        ensure!(contrast >= CONTRAST_MIN, "text of contrast {contrast:.1}");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(change: impl Fn(&mut Probe)) -> Option<String> {
        let mut probe = Probe {
            width: 400,
            overflow: 0,
            figures: 3,
            hidden: Vec::new(),
            letters_px: Some(11.0),
            silent: Vec::new(),
            astray: Vec::new(),
            light: Theme { paper: 1.0, contrast: 16.0 },
            dark: Theme { paper: 0.01, contrast: 14.0 },
        };
        change(&mut probe);
        probe.judge(400, 3).err().map(|error| error.to_string())
    }

    #[test]
    fn a_page_that_cannot_be_read_is_refused() {
        assert_eq!(probe(|_| ()), None);
        assert_eq!(probe(|probe| probe.letters_px = None), None);
        for (change, expected) in [
            ((|probe| probe.overflow = 12) as fn(&mut Probe), "the page reaches 12 px over its edge"),
            (|probe| probe.figures = 2, "2 of 3 figures have a chart"),
            (|probe| probe.hidden.push("a-8".to_owned()), "figures without a visible chart: a-8"),
            (|probe| probe.letters_px = Some(6.0), "letters of 6.0 px in a chart"),
            (|probe| probe.dark.contrast = 3.0, "text of contrast 3.0"),
        ] {
            assert_eq!(probe(change).as_deref(), Some(expected));
        }
    }
}
