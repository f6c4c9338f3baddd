//! The report: a line of JSON per case as it completes, and a table.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};

use crate::timing::Times;

/// The required result of a case.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bar {
    None,
    /// A share of the copy rate.
    Share(f64),
    /// The largest number of seconds of a call.
    Seconds(f64),
}

/// The description of a case.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    /// The bytes that a call must read and write at least, or 0 if the rate has no meaning.
    pub(crate) num_bytes: usize,
    pub(crate) bar: Bar,
    /// An explanation for readers, if the name needs one.
    pub(crate) note: &'static str,
    /// For `peers.py`: the number of elements of a value.
    pub(crate) len: usize,
    pub(crate) num_values: usize,
}

impl Case {
    pub(crate) fn new(name: impl Into<String>, num_bytes: usize, bar: Bar) -> Self {
        Self { name: name.into(), num_bytes, bar, note: "", len: 0, num_values: 0 }
    }

    pub(crate) fn of(self, len: usize, num_values: usize) -> Self {
        Self { len, num_values, ..self }
    }

    pub(crate) fn noted(self, note: &'static str) -> Self {
        Self { note, ..self }
    }
}

/// The destination of the results.
#[derive(Debug)]
pub(crate) struct Report {
    file: Option<File>,
    /// The bytes per second of a copy, once measured.
    pub(crate) copy_rate: Option<f64>,
    /// Whether the times are meaningful, so that they are compared with the bars.
    is_judged: bool,
    missed: Vec<String>,
    failed: Vec<String>,
}

impl Report {
    pub(crate) fn new(path: Option<&Path>, is_judged: bool) -> io::Result<Self> {
        let file = path.map(File::create).transpose()?;
        Ok(Self { file, copy_rate: None, is_judged, missed: Vec::new(), failed: Vec::new() })
    }

    /// Writes a line of JSON.
    pub(crate) fn line(&mut self, value: &Value) -> io::Result<()> {
        if let Some(file) = &mut self.file {
            writeln!(file, "{value}")?;
            file.flush()?;
        }
        Ok(())
    }

    /// Prints the head of the table.
    pub(crate) fn head() {
        println!(
            "{:<28} {:>10} {:>10} {:>10} {:>8} {:>6} {:>8}",
            "case", "ms", "least", "most", "GB/s", "share", "bar"
        );
    }

    /// Reports the result of a case.
    pub(crate) fn row(&mut self, case: &Case, times: &Times) -> io::Result<()> {
        let rate = bytes(case.num_bytes) / times.median;
        let share = self.copy_rate.map(|copy| rate / copy).filter(|_| case.num_bytes > 0);
        let (bar, is_reached) = match case.bar {
            Bar::None => (None, None),
            Bar::Share(bar) => (Some(bar), share.map(|share| share >= bar)),
            Bar::Seconds(bar) => (Some(bar * 1e3), Some(times.median <= bar)),
        };
        let is_reached = is_reached.filter(|_| self.is_judged);
        let verdict = match is_reached {
            None => "",
            Some(true) => "ok",
            Some(false) => "missed",
        };
        let is_time = matches!(case.bar, Bar::Seconds(_));
        let bar_text = bar.map_or(String::new(), |bar| {
            if is_time { format!("{bar:.4}ms") } else { format!("{bar:.2}") }
        });
        let cell = |number: Option<f64>, digits: usize| {
            number.map_or(String::new(), |number| format!("{number:.digits$}"))
        };
        let gigabytes = Some(rate / 1e9).filter(|_| case.num_bytes > 0);
        let line = format!(
            "{:<28} {:>10.4} {:>10.4} {:>10.4} {:>8} {:>6} {bar_text:>8} {verdict:<7} {}",
            case.name,
            times.median * 1e3,
            times.least * 1e3,
            times.most * 1e3,
            cell(gigabytes, 1),
            cell(share, 3),
            case.note
        );
        println!("{}", line.trim_end());
        if is_reached == Some(false) {
            self.missed.push(case.name.clone());
        }
        self.line(&json!({
            "case": case.name, "ms": times.median * 1e3, "least_ms": times.least * 1e3,
            "most_ms": times.most * 1e3, "calls": times.calls, "bytes": case.num_bytes,
            "gb_per_s": gigabytes, "share": share, "bar": bar,
            "bar_is": bar.map(|_| if is_time { "ms" } else { "share" }), "ok": is_reached,
            "len": case.len, "values": case.num_values, "note": case.note,
        }))
    }

    /// Reports the reason why a case has no result.
    pub(crate) fn failure(&mut self, name: &str, why: &str) -> io::Result<()> {
        println!("{name:<28} {why}");
        self.failed.push(name.to_owned());
        self.line(&json!({"case": name, "error": why}))
    }

    /// Prints the missed bars. Returns whether every case has a result.
    pub(crate) fn finish(&self) -> bool {
        for (what, names) in [("missed", &self.missed), ("no result", &self.failed)] {
            if !names.is_empty() {
                println!("{what}: {}", names.join(", "));
            }
        }
        self.failed.is_empty()
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
pub(crate) fn bytes(num_bytes: usize) -> f64 {
    num_bytes as f64
}
