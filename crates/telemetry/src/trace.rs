//! Sets up `tracing` for a program: events go to standard error, as lines for people or as JSON.

use std::io::IsTerminal;
use std::str::FromStr;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// How events look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// One line an event, with colours when standard error is a terminal.
    #[default]
    Human,
    /// One JSON object a line, for collectors.
    Json,
}

/// Why tracing cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The filter does not parse.
    #[error("the log filter `{filter}` is not valid; write for example `info,larder_master=debug`")]
    Filter {
        /// The filter as given.
        filter: String,
        /// What is wrong with it.
        source: tracing_subscriber::filter::ParseError,
    },
    /// The format is unknown.
    #[error("the log format `{0}` is not known; use `human` or `json`")]
    Format(String),
    /// A subscriber is installed already; a program may do this once.
    #[error("logging is set up twice; call it once, in main")]
    Twice(#[source] tracing_subscriber::util::TryInitError),
}

impl FromStr for Format {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<Self, TraceError> {
        match text {
            "human" => Ok(Self::Human),
            "json" => Ok(Self::Json),
            _ => Err(TraceError::Format(text.to_owned())),
        }
    }
}

/// Installs the subscriber of this process. `filter` is in the syntax of `tracing`'s directives,
/// for example `info,larder_master=debug`; an empty one means `info`.
///
/// # Errors
/// The filter does not parse, or a subscriber is installed already.
pub fn init(format: Format, filter: &str) -> Result<(), TraceError> {
    let filter = parse_filter(filter)?;
    let events = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(filter);
    match format {
        Format::Human => registry
            .with(events.with_ansi(std::io::stderr().is_terminal()))
            .try_init(),
        Format::Json => registry.with(events.json().flatten_event(true)).try_init(),
    }
    .map_err(TraceError::Twice)
}

fn parse_filter(filter: &str) -> Result<EnvFilter, TraceError> {
    let text = if filter.trim().is_empty() {
        "info"
    } else {
        filter
    };
    EnvFilter::try_new(text).map_err(|source| TraceError::Filter {
        filter: filter.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error_chain;

    #[test]
    fn an_empty_filter_means_info() {
        assert_eq!(parse_filter(" ").expect("parses").to_string(), "info");
    }

    #[test]
    fn a_wrong_filter_is_named() {
        let error = parse_filter("larder=loudly").expect_err("no such level");
        let text = error_chain(&error);
        assert!(
            text.contains("`larder=loudly`") && text.contains("info,"),
            "{text}"
        );
    }

    #[test]
    fn a_wrong_format_is_named() {
        let error = "yaml".parse::<Format>().expect_err("no such format");
        assert!(error.to_string().contains("`yaml`"), "{error}");
        assert_eq!("json".parse::<Format>().expect("known"), Format::Json);
    }

    // The only test that installs a subscriber: it is one per process.
    #[test]
    fn a_second_set_up_is_an_error() {
        init(Format::Json, "off").expect("the first one works");
        let error = init(Format::Human, "off").expect_err("the second one does not");
        assert!(matches!(error, TraceError::Twice(_)), "{error}");
    }
}
