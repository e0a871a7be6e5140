//! The `larder` program as a library: what a person or a script does with a pool.
//!
//! ```text
//! args      what may be typed      environment   what stands for it; nothing else reads it
//! target    which pool, tenant and agent a call goes to
//! objects   put, get, exists, remove, ls, stat        bench    the same, measured
//! quota     what tenants may hold, and why a put would be refused
//! drain     emptying an agent           tasks    copies and moves that somebody asked for
//! snapshot  what the masters know, kept under a name
//! value     the bytes of an object: from a file or standard input, into a file
//! inspect   the log and snapshots of a master, without it
//! up        a pool as processes of this machine       down, status   what became of it
//! ```

mod administer;
mod args;
mod bench;
mod bytes_text;
mod document;
mod down;
mod drain;
mod environment;
mod error;
mod fetch;
mod folder;
mod inspect;
mod objects;
mod output;
mod pins;
mod process_id;
mod programs;
mod promote;
mod quota;
mod snapshot;
mod status;
mod target;
mod tasks;
mod transfer;
mod up;
mod value;

use std::ffi::OsString;
use std::future::Future;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use larder_client::Pin;

use crate::args::{Args, Command, Format, Internal, asks_for_json};
use crate::environment::{Environment, settle};
use crate::error::{CliError, EXIT_USAGE};
use crate::output::Output;

/// Runs the program with these arguments, the first being its name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let json = asks_for_json(&arguments);
    if Internal::is_meant(&arguments) {
        return match Internal::try_parse_from(arguments) {
            Ok(internal) => told(perform_internal(internal), &mut Output::new(Format::Human)),
            Err(error) => refuse(&error, false),
        };
    }
    match Args::try_parse_from(arguments) {
        Ok(args) => {
            let mut output = Output::new(args.global.output);
            told(perform(args, &mut output), &mut output)
        }
        Err(error) => refuse(&error, json),
    }
}

fn told(outcome: Result<u8, CliError>, output: &mut Output) -> ExitCode {
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            output.error(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

/// Says what is wrong with the arguments, or shows the help or version that they ask for.
fn refuse(error: &clap::Error, json: bool) -> ExitCode {
    if !error.use_stderr() {
        // A closed terminal cannot be told anything.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if json {
        Output::new(Format::Json).error(&CliError::Usage(sentence(&error.to_string())));
    } else {
        let _ = error.print();
    }
    ExitCode::from(EXIT_USAGE)
}

/// What an error of the arguments says before it shows how they are used, in one line.
fn sentence(rendered: &str) -> String {
    let text = rendered.strip_prefix("error: ").unwrap_or(rendered);
    let end = ["\n\nUsage:", "\n\nFor more information"]
        .iter()
        .filter_map(|mark| text.find(mark))
        .min();
    let words = text[..end.unwrap_or(text.len())].split_whitespace();
    words.collect::<Vec<_>>().join(" ")
}

fn perform(args: Args, output: &mut Output) -> Result<u8, CliError> {
    let Args {
        mut global,
        command,
    } = args;
    settle(&mut global, Environment::read()?, |path| path.is_file())?;
    match command {
        Command::Put(put) => wait(objects::put(&global, &put, output)),
        Command::Get(get) => wait(objects::get(&global, &get, output)),
        Command::Exists(keys) => wait(objects::exists(&global, &keys, output)),
        Command::Remove(remove) => wait(objects::remove(&global, &remove, output)),
        Command::Pin(pin) => wait(pins::pin(&global, &pin.keys, pin.pin, output)),
        Command::Unpin(keys) => wait(pins::pin(&global, &keys.keys, Pin::None, output)),
        Command::Ls(ls) => wait(objects::list(&global, &ls, output)),
        Command::Stat(stat) if stat.keys.is_empty() => wait(objects::usage(&global, output)),
        Command::Stat(stat) => wait(pins::stat(&global, &stat.keys, output)),
        Command::Quota(quota) => wait(quota::quota(&global, &quota, output)),
        Command::Drain(drain) => wait(drain::drain(&global, &drain, output)),
        Command::Promote(asked) => wait(promote::promote(&global, &asked, output)),
        Command::Tasks(tasks) => wait(tasks::tasks(&global, &tasks, output)),
        Command::Snapshot(asked) => wait(snapshot::snapshot(&global, &asked, output)),
        Command::Inspect(asked) => inspect::inspect(&asked, output),
        Command::Bench(bench) => wait(bench::bench(&global, &bench, output)),
        Command::Transfer(asked) => transfer::transfer(&global, &asked, output),
        Command::Up(up) => wait(up::up(&global, &up, output)),
        Command::Down => wait(down::down(&global, output)),
        Command::Status => wait(status::status(&global, output)),
        Command::Version => output.version(),
        Command::Completions { shell } => {
            // Into memory first: the generator panics if its reader goes away.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), "larder", &mut script);
            output.bytes(&script)?;
            Ok(0)
        }
    }
}

fn perform_internal(internal: Internal) -> Result<u8, CliError> {
    match internal {
        Internal::Master(run) => programs::master(&run),
        Internal::Agent(run) => programs::agent(&run),
        Internal::Pool { run_folder } => wait(up::run_detached(&run_folder)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_arguments_is_one_line() {
        let error = Args::try_parse_from(["larder", "up"]).expect_err("no file");
        let text = sentence(&error.to_string());
        assert!(
            text.contains("--file <FILE>") && !text.contains("Usage"),
            "{text}"
        );
        assert_eq!(text.lines().count(), 1);
    }

    #[test]
    fn suggestions_and_completions_know_only_what_people_type() {
        let error = Args::try_parse_from(["larder", "run-mastr"]).expect_err("no command");
        assert!(!error.to_string().contains("run-master"), "{error}");
        let mut script = Vec::new();
        clap_complete::generate(
            clap_complete::Shell::Bash,
            &mut Args::command(),
            "larder",
            &mut script,
        );
        let script = String::from_utf8(script).expect("text");
        for hidden in [
            "run-master",
            "run-agent",
            "run-pool",
            "--runtime-dir",
            "--home",
        ] {
            assert!(!script.contains(hidden), "{hidden}");
        }
    }
}
