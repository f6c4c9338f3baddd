//! What is told: a line of JSON for each case as it comes, and a table.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};

use crate::timing::Times;

/// What a case has to reach.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bar {
    None,
    /// Of the copy rate.
    Share(f64),
    /// Seconds of a call, or less.
    Seconds(f64),
}

/// What a row is about.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    /// What a call reads and writes at least; 0 where that says nothing.
    pub(crate) num_bytes: usize,
    pub(crate) bar: Bar,
    /// For people, and where the name does not say it.
    pub(crate) note: &'static str,
    /// What `peers.py` needs to do the same: the elements of a value, and how many values there are.
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

/// Where results go.
#[derive(Debug)]
pub(crate) struct Report {
    file: Option<File>,
    /// Bytes per second of a copy, once it is known.
    pub(crate) copy_rate: Option<f64>,
    /// Whether times mean something, so that bars are reached or missed.
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

    /// Prints the first line of the table.
    pub(crate) fn head() {
        println!(
            "{:<28} {:>10} {:>10} {:>10} {:>8} {:>6} {:>8}",
            "case", "ms", "least", "most", "GB/s", "share", "bar"
        );
    }

    /// Tells what a case has given.
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

    /// Tells why a case has given nothing.
    pub(crate) fn failure(&mut self, name: &str, why: &str) -> io::Result<()> {
        println!("{name:<28} {why}");
        self.failed.push(name.to_owned());
        self.line(&json!({"case": name, "error": why}))
    }

    /// Tells how many bars were missed, and returns whether every case gave something.
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
