//! `larder up`: a pool as processes of this machine, from the same file as for Kubernetes.
//!
//! ```text
//! plan         pure: pool file -> names, configurations, who gets a credential
//! machine      memory and ports of this machine          credentials   makes the secrets
//! child        one process over its lives                supervise     all of them, in order
//! stops        the signals that ask to stop
//! ```

mod child;
mod credentials;
mod machine;
mod plan;
mod stops;
mod supervise;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use larder_crds::PoolFile;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use self::child::end;
use self::plan::Plan;
use self::stops::Stops;
use self::supervise::{cleaned, supervise};
use crate::args::{Global, Up};
use crate::document::PoolDocument;
use crate::down::{SUPERVISOR_LIMIT, stop};
use crate::error::CliError;
use crate::folder::{Claim, RunFolder};
use crate::output::{Output, error_value, note};
use crate::status::show;

/// A pool file longer than this is refused by its reader; one byte more shows that it is.
const FILE_MAX_BYTES: u64 = (1 << 20) + 1;
/// The name under which the supervisor of a detached pool logs.
const SUPERVISOR_LOG: &str = "supervisor";

/// Starts a pool, and stays with it unless it is to be detached.
pub(crate) async fn up(global: &Global, args: &Up, output: &mut Output) -> Result<u8, CliError> {
    let (text, name) = read_pool_file(&args.file)?;
    let file = PoolFile::parse(&text, &name)?;
    if file.pool.agents == 0 {
        return Err(CliError::Usage(
            "spec.nodes.count is 0: nothing would hold objects; give at least 1 under larder up"
                .to_owned(),
        ));
    }
    let folder = RunFolder::for_new(global, &file.pool.name)?;
    plan::check_sockets(&folder, file.pool.agents)?;
    machine::check_memory(&file.pool, Path::new("/"))?;
    machine::check_ports(args.client_port, args.admin_port)?;
    plan::check_masters(&file)?;
    let ports = match file.pool.masters {
        1 => Vec::new(),
        // A port for clients and one for administration each.
        masters => machine::free_ports(2 * masters as usize, &[args.client_port, args.admin_port])?,
    };
    let plan = Plan::new(&file, args, &ports);
    let tokens = plan::tokens(&file, &plan)?;
    if file.tenants.is_empty() {
        note("note: the file has no CacheTenant, so nobody will be able to put or get");
    }
    for lack in machine::lacks(&file.pool) {
        note(&format!("note: {lack}"));
    }
    // Before there is anything that a signal could leave behind.
    let mut stops = Stops::new()?;
    let claim = folder.create(&plan.pool)?;
    let token_files = Plan::token_files(&folder, &tokens);
    if let Err(error) = write_all(&folder, &file, &plan, &tokens, &token_files) {
        return Err(cleaned(&folder, error));
    }
    if args.detach {
        detach(&folder, &claim, &mut stops).await?;
        announce(&folder, &folder.document()?, true, output)?;
    } else {
        supervise(&folder, &plan, token_files, stops, |document| {
            announce(&folder, document, false, output)
        })
        .await?;
        note(&format!("pool {} is down", plan.pool));
    }
    Ok(0)
}

fn read_pool_file(path: &Path) -> Result<(String, String), CliError> {
    let mut text = String::new();
    if path == Path::new("-") {
        let read = std::io::stdin()
            .lock()
            .take(FILE_MAX_BYTES)
            .read_to_string(&mut text);
        read.map_err(|source| CliError::System {
            action: "read standard input",
            source,
        })?;
        return Ok((text, "standard input".to_owned()));
    }
    let read =
        File::open(path).and_then(|file| file.take(FILE_MAX_BYTES).read_to_string(&mut text));
    match read {
        Ok(_) => Ok((text, path.display().to_string())),
        Err(error) => Err(CliError::Usage(format!(
            "cannot read the pool file {} ({error}); give another with -f",
            path.display()
        ))),
    }
}

fn write_all(
    folder: &RunFolder,
    file: &PoolFile,
    plan: &Plan,
    tokens: &[plan::TokenPlan],
    token_files: &BTreeMap<String, PathBuf>,
) -> Result<(), CliError> {
    credentials::write(folder, tokens)?;
    folder.write_json("config/tenants.json", &plan::tenants(file))?;
    folder.write_json("config/quotas.json", &plan::quotas(file))?;
    folder.write_json("config/token-files.json", token_files)?;
    folder.write_json("plan.json", plan)?;
    Ok(())
}

fn announce(
    folder: &RunFolder,
    document: &PoolDocument,
    detached: bool,
    output: &mut Output,
) -> Result<(), CliError> {
    let dir = folder.path().display();
    let tenant = document.tenants().next().unwrap_or("TENANT");
    let stop = if detached { "" } else { "  (or Ctrl-C here)" };
    let human = format!(
        "{}\nit is up in {dir}\n\n  \
         put   larder --dir {dir} --tenant {tenant} put KEY FILE\n  \
         get   larder --dir {dir} --tenant {tenant} get KEY FILE\n  \
         see   larder --dir {dir} status\n  \
         stop  larder --dir {dir} down{stop}",
        show(document)
    );
    output.result(document, &human)
}

/// Starts the supervisor in a session of its own and waits until the pool is up.
async fn detach(folder: &RunFolder, claim: &Claim, stops: &mut Stops) -> Result<(), CliError> {
    let mut child = match start_supervisor(folder, claim) {
        Ok(child) => child,
        Err(error) => return Err(cleaned(folder, error)),
    };
    let started = tokio::select! {
        biased;
        () = stops.next() => Err(CliError::Program("stopped before the pool was up".to_owned())),
        started = until_up(folder, &mut child) => started,
    };
    let Err(error) = started else { return Ok(()) };
    end(&mut child, SUPERVISOR_LIMIT).await;
    // The supervisor has cleaned up, unless it was killed, or ended before it could.
    match folder.supervisor() {
        Ok(Some(left)) if left.process.pid != std::process::id() => {
            stop(folder, &left)?;
        }
        Ok(None) => {}
        _ => return Err(cleaned(folder, error)),
    }
    Err(error)
}

fn cannot_start_supervisor(source: std::io::Error) -> CliError {
    CliError::System {
        action: "start the supervisor of the pool",
        source,
    }
}

fn start_supervisor(folder: &RunFolder, claim: &Claim) -> Result<Child, CliError> {
    let system = cannot_start_supervisor;
    let executable = std::env::current_exe().map_err(system)?;
    let log = folder.open_log(SUPERVISOR_LOG)?;
    Command::new(executable)
        .arg("run-pool")
        .arg(folder.path())
        .stdin(claim.share().map_err(system)?)
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .map_err(system)
}

/// Waits for what the supervisor says in one line.
async fn until_up(folder: &RunFolder, child: &mut Child) -> Result<(), CliError> {
    let system = cannot_start_supervisor;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout)
            .read_line(&mut line)
            .await
            .map_err(system)?;
    }
    let said: Value = serde_json::from_str(&line).unwrap_or_default();
    if said.get("ready").is_some() {
        return Ok(());
    }
    let tail = folder.log_tail(SUPERVISOR_LOG);
    let status = child.wait().await.map_err(system)?;
    match said.pointer("/error/message").and_then(Value::as_str) {
        Some(message) => Err(CliError::Program(message.to_owned())),
        None => Err(CliError::Program(format!(
            "the supervisor of the pool ended ({status}); its log ends with:{tail}"
        ))),
    }
}

/// Runs a pool that [`up`] has prepared, for `up --detach`: says on standard output in one line
/// whether it is up, then goes on without a terminal.
pub(crate) async fn run_detached(run_folder: &Path) -> Result<u8, CliError> {
    // It fails only if this process leads its own session already, which is what is wanted.
    let _ = rustix::process::setsid();
    // Standard input is the claim of `up` on the folder: it is held as long as this process lives.
    let stops = Stops::new()?;
    let folder = RunFolder::at(run_folder)?;
    let read = || -> Result<(Plan, BTreeMap<String, PathBuf>), CliError> {
        let missing = || CliError::NoPool(format!("{} holds no plan", folder.path().display()));
        Ok((
            folder.read_json("plan.json")?.ok_or_else(missing)?,
            folder
                .read_json("config/token-files.json")?
                .ok_or_else(missing)?,
        ))
    };
    let (plan, token_files) = read()?;
    let outcome = supervise(&folder, &plan, token_files, stops, |_| {
        // Whoever started this and went away before it was up does not want it.
        say("{\"ready\":true}").map_err(|source| CliError::System {
            action: "tell `larder up` that the pool is up",
            source,
        })
    })
    .await;
    let Err(error) = outcome else { return Ok(0) };
    let message = larder_telemetry::error_chain(&error);
    note(&message);
    // Nobody may be left to hear it; the log of the supervisor has it too.
    let _ = say(&error_value(&error, &message).to_string());
    Ok(error.exit_code())
}

/// One line to the process that started this one.
fn say(line: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}
