//! What the server logs, to its standard error.

use clap::ArgMatches;
use kvstore::Error;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::settings::given;

/// Starts to log. With the level `debug`, each call has a line when it ends, with its times and the
/// trace of the caller.
///
/// # Errors
/// - [`Error::InvalidArgument`] if a setting is not valid.
pub(crate) fn start(arguments: &ArgMatches) -> Result<(), Error> {
    let settings = given(arguments, &["log", "log_format"]);
    let find = |wanted: &str| settings.iter().find(|(name, _)| *name == wanted);
    let level = match find("log") {
        None => LevelFilter::WARN,
        Some((_, found)) => found.parse().map_err(|_| {
            Error::invalid(format!(
                "option `log`: expected error, warn, info, debug or trace, found `{found}`"
            ))
        })?,
    };
    let spans = if level >= LevelFilter::DEBUG { FmtSpan::CLOSE } else { FmtSpan::NONE };
    // The libraries for HTTP/2 log each frame.
    let others = level.min(LevelFilter::WARN);
    let targets = Targets::new()
        .with_default(others)
        // It warns of each faulty connection, so a peer could fill the log.
        .with_target("h2", level.min(LevelFilter::ERROR))
        .with_target("kvstore", level);
    let layer =
        tracing_subscriber::fmt::layer().with_span_events(spans).with_writer(std::io::stderr);
    match find("log_format").map(|(_, found)| found.as_str()) {
        None | Some("text") => {
            tracing_subscriber::registry().with(targets).with(layer.with_ansi(false)).init();
        }
        Some("json") => {
            tracing_subscriber::registry().with(targets).with(layer.json()).init();
        }
        Some(found) => {
            let text = format!("option `log_format`: expected text or json, found `{found}`");
            return Err(Error::invalid(text));
        }
    }
    Ok(())
}
