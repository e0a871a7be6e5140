//! Running other programs, and waiting for what they bring about.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Where programs are looked for, on the machine and on its nodes.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// How often a condition is looked at. Each look may start a program, which costs more.
const LOOK: Duration = Duration::from_millis(50);

/// Finds a program in [`PATH`].
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    PATH.split(':')
        .map(|folder| PathBuf::from(folder).join(program))
        .find(|path| path.is_file())
}

/// Runs a command to its end and gives what it printed.
///
/// # Errors
/// With its error output, if it fails.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    finish(command, None)
}

/// Like [`run`], with a text as standard input.
///
/// # Errors
/// With its error output, if it fails.
pub(crate) fn feed(command: &mut Command, input: &[u8]) -> Result<String> {
    finish(command, Some(input))
}

fn finish(command: &mut Command, input: Option<&[u8]>) -> Result<String> {
    let output = output(command, input)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = if said.trim().is_empty() {
            &text
        } else {
            said.as_ref()
        };
        bail!("{}: {}: {}", line(command), output.status, said.trim());
    }
    Ok(text)
}

/// Runs a command to its end, whatever its status.
///
/// # Errors
/// If it cannot be started.
pub(crate) fn output(command: &mut Command, input: Option<&[u8]>) -> Result<Output> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    if input.is_some() {
        command.stdin(Stdio::piped());
    }
    let mut child = command
        .spawn()
        .with_context(|| format!("{} cannot be started", line(command)))?;
    let pipe = child.stdin.take();
    std::thread::scope(|scope| {
        if let (Some(mut pipe), Some(input)) = (pipe, input) {
            // Beside the reading of its output, or both sides could wait for each other. A
            // program that ends without reading all of it says why itself.
            scope.spawn(move || drop(pipe.write_all(input)));
        }
        child
            .wait_with_output()
            .with_context(|| format!("{} was lost", line(command)))
    })
}

/// The command as a person would type it, more or less, and not for ever.
fn line(command: &Command) -> String {
    const LONG: usize = 200;
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let text = words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ");
    if text.chars().count() <= LONG {
        return text;
    }
    text.chars().take(LONG).chain("..".chars()).collect()
}

/// Waits until `look` is content. `what` completes "waited in vain for ..".
///
/// # Errors
/// After `limit`, with what the last look found; at once if `look` says that waiting is no use.
pub fn until<T>(
    what: &str,
    limit: Duration,
    mut look: impl FnMut() -> Result<Look<T>>,
) -> Result<T> {
    let end = Instant::now() + limit;
    loop {
        let found = match look()? {
            Look::Content(value) => return Ok(value),
            Look::NotYet(found) => found,
        };
        if Instant::now() > end {
            bail!("waited in vain for {what} ({} s): {found}", limit.as_secs());
        }
        std::thread::sleep(LOOK);
    }
}

/// What a look at a condition found.
#[derive(Debug)]
pub enum Look<T> {
    /// It holds.
    Content(T),
    /// It does not hold yet, and this is how it stands.
    NotYet(String),
}

impl<T> Look<T> {
    /// Takes an error as a reason to wait on.
    #[must_use]
    pub fn at(result: Result<T>) -> Self {
        match result {
            Ok(value) => Self::Content(value),
            Err(error) => Self::NotYet(format!("{error:#}")),
        }
    }
}

impl Look<()> {
    /// Content if the condition holds.
    #[must_use]
    pub fn holds(holds: bool, otherwise: &str) -> Self {
        if holds {
            Self::Content(())
        } else {
            Self::NotYet(otherwise.to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_the_program_said() {
        let error = run(Command::new("sh").args(["-c", "echo reason >&2; exit 3"])).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("reason") && text.contains('3'), "{text}");
    }

    #[test]
    fn input_larger_than_a_pipe_passes_through() {
        let input = vec![b'x'; 1 << 20];
        assert_eq!(
            feed(&mut Command::new("cat"), &input).unwrap().len(),
            input.len()
        );
    }

    #[test]
    fn waiting_ends_with_what_was_found_last() {
        let mut looks = 0;
        let waited = until("the end", Duration::ZERO, || {
            looks += 1;
            Ok(Look::<()>::NotYet(format!("look {looks}")))
        });
        assert!(waited.unwrap_err().to_string().contains("look 1"));
    }
}
