//! The `larder` program as a library: what a person or a script does with a pool.
//!
//! ```text
//! args      what may be typed, and the environment; nothing else reads it
//! target    which pool, tenant and agent a call goes to
//! objects   put, get, exists, remove, ls, stat        bench    the same, measured
//! up        a pool as processes of this machine       down, status   what became of it
//! ```

mod args;
mod bench;
mod bytes_text;
mod document;
mod down;
mod error;
mod fetch;
mod folder;
mod objects;
mod output;
mod process_id;
mod programs;
mod status;
mod target;
mod up;

use std::ffi::OsString;
use std::future::Future;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::args::{Args, Command};
use crate::error::{CliError, EXIT_USAGE};
use crate::output::Output;

/// Runs the program with these arguments, the first being its name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args = match Args::try_parse_from(arguments) {
        Ok(args) => args,
        Err(error) => {
            let is_fault = error.use_stderr();
            // A closed terminal cannot be told anything.
            let _ = error.print();
            return if is_fault {
                ExitCode::from(EXIT_USAGE)
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    let mut output = Output::new(args.global.output);
    match perform(args, &mut output) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            output.error(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

fn perform(args: Args, output: &mut Output) -> Result<u8, CliError> {
    let Args { global, command } = args;
    match command {
        Command::Put(put) => wait(objects::put(&global, &put, output)),
        Command::Get(get) => wait(objects::get(&global, &get, output)),
        Command::Exists(keys) => wait(objects::exists(&global, &keys, output)),
        Command::Remove(keys) => wait(objects::remove(&global, &keys, output)),
        Command::Ls(ls) => wait(objects::list(&global, &ls, output)),
        Command::Stat => wait(objects::stat(&global, output)),
        Command::Bench(bench) => wait(bench::bench(&global, &bench, output)),
        Command::Up(up) => wait(up::up(&global, &up, output)),
        Command::Down => wait(down::down(&global, output)),
        Command::Status => wait(status::status(&global, output)),
        Command::Version => output.version(),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Args::command(), "larder", &mut output.writer());
            Ok(0)
        }
        Command::RunMaster(run) => programs::master(&run),
        Command::RunAgent(run) => programs::agent(&run),
        Command::RunPool { run_folder } => wait(up::run_detached(&run_folder)),
    }
}

/// Runs one command to its end on this thread.
fn wait<T>(work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| CliError::System {
            action: "start the runtime",
            source,
        })?;
    runtime.block_on(work)
}
