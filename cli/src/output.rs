//! Prints results to standard output and errors where their reader looks.

use std::io::{self, IsTerminal, Write};

use larder_telemetry::error_chain;
use larder_wire::limit::PROTOCOL_MAX;
use serde::Serialize;
use serde_json::json;

use crate::args::Format;
use crate::error::CliError;

/// Where results go, and in which form.
#[derive(Debug)]
pub(crate) struct Output {
    format: Format,
}

impl Output {
    pub(crate) const fn new(format: Format) -> Self {
        Self { format }
    }

    /// Whether results are JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// Standard output itself.
    #[expect(clippy::unused_self, reason = "who prints must hold the output")]
    pub(crate) fn writer(&mut self) -> impl Write + use<> {
        io::stdout().lock()
    }

    /// Whether standard output is a terminal.
    #[expect(clippy::unused_self, reason = "who asks must hold the output")]
    pub(crate) fn is_terminal(&self) -> bool {
        io::stdout().is_terminal()
    }

    /// Prints a result: `human` for people, `value` as one line of JSON.
    pub(crate) fn result(&mut self, value: &impl Serialize, human: &str) -> Result<(), CliError> {
        let text = match self.format {
            Format::Human => human.to_owned(),
            Format::Json => serde_json::to_string(value)
                .map_err(|error| CliError::Program(format!("cannot print the result: {error}")))?,
        };
        self.line(&text)
    }

    /// Prints a line. A reader that went away is no failure of the work.
    pub(crate) fn line(&mut self, text: &str) -> Result<(), CliError> {
        self.bytes(format!("{text}\n").as_bytes())
    }

    /// Prints bytes as they are. A reader that went away is no failure of the work.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        let mut out = self.writer();
        match out.write_all(bytes).and_then(|()| out.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(CliError::System {
                action: "write to standard output",
                source: error,
            }),
            _ => Ok(()),
        }
    }

    /// Prints the version.
    pub(crate) fn version(&mut self) -> Result<u8, CliError> {
        let version = env!("CARGO_PKG_VERSION");
        let value = json!({ "version": version, "protocol": PROTOCOL_MAX });
        self.result(
            &value,
            &format!("larder {version} (protocol {PROTOCOL_MAX})"),
        )?;
        Ok(0)
    }

    /// Prints why the command failed: one sentence to standard error, or a document.
    pub(crate) fn error(&mut self, error: &CliError) {
        let message = error_chain(error);
        if self.is_json() {
            let value = error_value(error, &message);
            // Nobody reads any more: the exit code still tells.
            let _ = self.line(&value.to_string());
        } else {
            note(&format!("error: {message}"));
        }
    }
}

/// The error as a document.
pub(crate) fn error_value(error: &CliError, message: &str) -> serde_json::Value {
    json!({ "error": {
        "code": error.code().number(),
        "reason": error.reason(),
        "message": message,
    } })
}

/// Says something beside the results, to standard error. A closed one cannot be told.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
