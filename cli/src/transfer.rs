//! `larder transfer`: bytes between the memories of two processes, without a pool.
//!
//! ```text
//! serve      offers memory
//! bench      threads that read and write it, and what is told of them
//! worker     one request after the other
//! latencies  how long they took
//! ```

mod bench;
mod latencies;
mod serve;
mod worker;

use std::path::Path;

use larder_telemetry::error_chain;
use larder_transfer::endpoint::EndpointOptions;
use larder_types::{Incarnation, TenantId};
use larder_wire::limit::MAX_CREDENTIAL_BYTES;

use crate::args::{Global, Transfer};
use crate::error::CliError;
use crate::output::Output;

/// The tenant of everybody who has the secret.
const TENANT: &str = "transfer";

/// Does what the arguments say.
pub(crate) fn transfer(
    global: &Global,
    asked: &Transfer,
    output: &mut Output,
) -> Result<u8, CliError> {
    match asked {
        Transfer::Serve(asked) => serve::serve(asked, output),
        Transfer::Bench(asked) => bench::bench(global, asked, output),
    }
}

/// Options of an endpoint whose peers show the secret of this file.
fn options(secret_file: &Path) -> Result<EndpointOptions, CliError> {
    let read = std::fs::read(secret_file);
    let secret = read.map_err(|source| CliError::file("read", secret_file, source))?;
    let secret = secret.trim_ascii().to_vec();
    if secret.is_empty() || secret.len() > MAX_CREDENTIAL_BYTES {
        return Err(CliError::Usage(format!(
            "{} has to hold a secret of 1 to {MAX_CREDENTIAL_BYTES} bytes; write one with \
             `openssl rand -hex 32`",
            secret_file.display()
        )));
    }
    let tenant = TenantId::new(TENANT).map_err(program)?;
    // Never zero.
    let life = Incarnation(rand::random::<u64>().max(1));
    Ok(EndpointOptions::new("transfer", life, tenant, secret))
}

/// An error of a part that this program uses.
fn program<E: std::error::Error + 'static>(error: E) -> CliError {
    CliError::Program(error_chain(&error))
}

/// A thread's runtime.
fn runtime() -> Result<tokio::runtime::Runtime, CliError> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder
        .enable_all()
        .build()
        .map_err(|source| CliError::System {
            action: "start the runtime",
            source,
        })
}
