//! `kvstore replay`.

use std::io::{BufWriter, Write};
use std::path::PathBuf;

use clap::ArgMatches;
use kvstore::{
    Difference, Error, ReplayOptions, ReplayReport, ReplayedStep, backends, replay_steps,
};

use crate::get;

/// The most keys and members in the tables.
const MOST_ROWS: usize = 100;

/// Replays a journal and prints what it has.
///
/// # Errors
/// - [`Error::Corrupt`] if a value differs, or the journal is damaged.
/// - The other errors of [`replay_steps`].
pub(crate) fn run(arguments: &ArgMatches) -> Result<(), Error> {
    let path = |name: &str| arguments.get_one::<String>(name).map(PathBuf::from);
    let options = ReplayOptions { from: path("from"), to: path("to"), write: path("write") };
    let file = get(arguments, "file");
    let lists_steps = arguments.get_flag("steps");
    let mut out = BufWriter::new(std::io::stdout().lock());
    // The reader of the output may have gone.
    let report = replay_steps(backends(), file, &options, &mut |step| {
        if lists_steps {
            let _ = print_step(step, &mut out);
        }
    })?;
    let _ = print(&report, &mut out).and_then(|()| out.flush());
    match report.difference {
        None => Ok(()),
        Some(Difference { record, offset, text }) => Err(Error::Corrupt {
            subject: format!("replay of `{file}`"),
            reason: format!("record {record} at byte {offset}: {text}"),
        }),
    }
}

/// Prints a step, such as `step 12  w version 3, x version 3  a (weight 2), b (weight 1)`.
fn print_step(step: &ReplayedStep, out: &mut impl Write) -> std::io::Result<()> {
    write!(out, "step {}", step.record)?;
    for (index, (key, version)) in step.keys.iter().enumerate() {
        let separator = if index == 0 { "  " } else { ", " };
        write!(out, "{separator}{key} version {version}")?;
    }
    for (index, member) in step.members.iter().enumerate() {
        write!(out, "{}{}", if index == 0 { "  " } else { ", " }, member.name)?;
        if let Some(weight) = member.weight {
            write!(out, " (weight {weight})")?;
        }
    }
    writeln!(out)
}

fn print(report: &ReplayReport, out: &mut impl Write) -> std::io::Result<()> {
    writeln!(out, "runs      {}", report.num_runs)?;
    writeln!(out, "steps     {}", report.num_steps)?;
    writeln!(out, "changes   {}", report.num_changes)?;
    writeln!(out, "failed    {}", report.num_failed)?;
    let seconds = report.duration.as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "it is rounded")]
    let (megabytes, steps) = (report.num_bytes as f64 / 1e6, report.num_steps as f64);
    let rate = |count: f64| if seconds > 0.0 { count / seconds } else { 0.0 };
    writeln!(out, "read      {megabytes:.1} MB in {seconds:.3} s")?;
    writeln!(out, "speed     {:.0} steps/s, {:.0} MB/s", rate(steps), rate(megabytes))?;
    let (values, marks) = (report.num_compared_values, report.num_compared_marks);
    writeln!(out, "compared  {values} values in steps, all keys {marks} times")?;
    if let Some(incomplete) = report.incomplete {
        let (offset, num_bytes) = (incomplete.offset, incomplete.num_bytes);
        writeln!(out, "ignored   {num_bytes} bytes of an incomplete record at byte {offset}")?;
    }
    if !report.is_ended {
        writeln!(out, "end       the journal does not end with the end of its server")?;
    }
    if report.num_runs_with_values < report.num_runs {
        let without = report.num_runs - report.num_runs_with_values;
        writeln!(out, "order     {without} runs have no values: only their order was checked")?;
    }
    writeln!(out, "members   {}", report.members.len())?;
    for (name, num_steps) in report.members.iter().take(MOST_ROWS) {
        writeln!(out, "  {num_steps:>10} steps  {name}")?;
    }
    print_rest(report.members.len(), out)?;
    writeln!(out, "keys      {}", report.keys.len())?;
    for (key, replayed) in report.keys.iter().take(MOST_ROWS) {
        let (num_steps, version) = (replayed.num_steps, replayed.version);
        writeln!(out, "  {num_steps:>10} steps  version {version:>10}  {key}")?;
    }
    print_rest(report.keys.len(), out)
}

fn print_rest(len: usize, out: &mut impl Write) -> std::io::Result<()> {
    match len.checked_sub(MOST_ROWS) {
        None | Some(0) => Ok(()),
        Some(rest) => writeln!(out, "  and {rest} others"),
    }
}
