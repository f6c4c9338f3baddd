//! Measures the store on a GPU, beside the GPU's own copy rate: sums, steps, pulls, codes, rows,
//! many small keys, operations on arrays.
//!
//! `kvstore-gpu-bench [--small] [--first-calls] [--json FILE] [--seconds N] [NAME..]`
//!
//! Calls go through the store, as in a user's program. They are queued one after the other, and the
//! clock stops when all of them are complete. `NAME` is the beginning of the names of the cases to
//! run. `--small` is for an emulated driver: a functional test, whose times mean nothing.

mod arrays;
mod bench;
mod codes;
mod data;
mod dense;
mod report;
mod row_sparse;
mod small_keys;
mod timing;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use data::Sizes;

/// The options on the command line.
#[derive(Debug)]
pub(crate) struct Options {
    sizes: Sizes,
    is_small: bool,
    only_first_calls: bool,
    json: Option<PathBuf>,
    at_most: Duration,
    names: Vec<String>,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            sizes: Sizes::FULL,
            is_small: false,
            only_first_calls: false,
            json: None,
            at_most: Duration::from_secs(600),
            names: Vec::new(),
        };
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument}: of what?"));
            match argument.as_str() {
                "--small" => (options.sizes, options.is_small) = (Sizes::SMALL, true),
                "--first-calls" => options.only_first_calls = true,
                "--json" => options.json = Some(value()?.into()),
                "--seconds" => {
                    let seconds = value()?.parse().map_err(|_| "--seconds: a number".to_owned())?;
                    options.at_most = Duration::from_secs(seconds);
                }
                name if name.starts_with('-') => return Err(format!("{name}: unknown")),
                name => options.names.push(name.to_owned()),
            }
        }
        Ok(options)
    }
}

fn main() -> ExitCode {
    let run = Options::parse(std::env::args().skip(1))
        .map_err(Into::into)
        .and_then(|options| bench::run(&options));
    match run {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("kvstore-gpu-bench: {error}");
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Options;

    #[test]
    fn options_are_distinguished_from_names() {
        let parse = |text: &str| Options::parse(text.split(' ').map(str::to_owned));
        let options = parse("--small --json a.jsonl sum adam").expect("known ones");
        assert!(options.is_small && !options.only_first_calls);
        assert_eq!(options.names, ["sum", "adam"]);
        assert_eq!(parse("--json").unwrap_err(), "--json: of what?");
        assert_eq!(parse("--smal").unwrap_err(), "--smal: unknown");
    }
}
