//! The environment variables that stand for options, and which of the two counts.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Parser;

use crate::args::Global;
use crate::error::CliError;

/// Where pods of a tenant mount their projected token.
pub(crate) const PROJECTED_TOKEN: &str = "/var/run/larder-token/token";

/// The environment variables of this program. One that is empty counts as absent. They are no
/// `env` of the options themselves, because then nobody could tell a flag from a variable.
#[derive(Debug, Default, Parser)]
#[command(no_binary_name = true)]
pub(crate) struct Environment {
    #[arg(long, env = "LARDER_MASTERS")]
    masters: Option<OsString>,
    #[arg(long, env = "LARDER_TOKEN_FILE")]
    token_file: Option<OsString>,
    #[arg(long, env = "LARDER_SOCKET")]
    socket: Option<OsString>,
    #[arg(long, env = "LARDER_DIR")]
    dir: Option<OsString>,
    #[arg(long, env = "LARDER_TENANT")]
    tenant: Option<OsString>,
    #[arg(long, env = "XDG_RUNTIME_DIR")]
    runtime_dir: Option<OsString>,
    #[arg(long, env = "HOME")]
    home: Option<OsString>,
}

impl Environment {
    /// Reads the variables.
    pub(crate) fn read() -> Result<Self, CliError> {
        Self::try_parse_from(std::iter::empty::<OsString>())
            .map_err(|error| CliError::Usage(format!("the environment cannot be read: {error}")))
    }
}

/// Fills in what the flags leave open. A flag that names a pool of this machine goes before the
/// variables that name one by its address. `is_there` says whether a file is.
pub(crate) fn settle(
    global: &mut Global,
    environment: Environment,
    is_there: impl Fn(&Path) -> bool,
) -> Result<(), CliError> {
    refuse_contradictions(global)?;
    let path = |text: Option<OsString>| text.filter(|text| !text.is_empty()).map(PathBuf::from);
    let text = |value: Option<OsString>| {
        let value = value.filter(|value| !value.is_empty())?;
        Some(value.to_string_lossy().into_owned())
    };
    let names_pool = [&global.pool, &global.tenant, &global.via]
        .iter()
        .any(|flag| flag.is_some())
        || global.dir.is_some();
    if !names_pool {
        if global.master.is_empty() {
            let masters = text(environment.masters).unwrap_or_default();
            let masters = masters.split(',').filter(|master| !master.is_empty());
            global.master = masters.map(str::to_owned).collect();
        }
        let flag = global.token_file.take();
        let projected = || Some(PathBuf::from(PROJECTED_TOKEN)).filter(|path| is_there(path));
        // What a pod mounts there belongs to the pool that its variables name, and to no other.
        let projected = || projected().filter(|_| !global.master.is_empty());
        global.token_file = flag
            .or_else(|| path(environment.token_file))
            .or_else(projected);
        let flag = global.socket.take();
        global.socket = flag.or_else(|| path(environment.socket));
    }
    let flag = global.dir.take();
    global.dir = flag.or_else(|| path(environment.dir));
    let flag = global.tenant.take();
    global.tenant = flag.or_else(|| text(environment.tenant));
    global.runtime_dir = path(environment.runtime_dir);
    global.home = path(environment.home);
    Ok(())
}

fn refuse_contradictions(global: &Global) -> Result<(), CliError> {
    let usage = |text: String| Err(CliError::Usage(text));
    if global.master.iter().any(String::is_empty) {
        return usage("--master wants host:port, and one is empty".to_owned());
    }
    let local = [
        ("--dir", global.dir.is_some()),
        ("--pool", global.pool.is_some()),
        ("--tenant", global.tenant.is_some()),
        ("--via", global.via.is_some()),
    ];
    if let Some((flag, _)) = local.iter().find(|(_, given)| *given)
        && !global.master.is_empty()
    {
        return usage(format!(
            "--master and {flag} contradict each other: --master names a pool by its address, \
             {flag} one that `larder up` started; leave one of them out"
        ));
    }
    if global.via.is_some() && global.socket.is_some() {
        return usage(
            "--via and --socket both say which agent is used; leave one of them out".to_owned(),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::Args;

    fn environment() -> Environment {
        Environment {
            masters: Some("m:1,m:2".into()),
            token_file: Some("/env.token".into()),
            socket: Some("/env.sock".into()),
            dir: Some("/env".into()),
            tenant: Some("t".into()),
            runtime_dir: Some("".into()),
            home: Some("/home/x".into()),
        }
    }

    fn settled(flags: &[&str], environment: Environment) -> Result<Global, CliError> {
        let words = ["larder"].iter().chain(flags).chain(&["ls"]);
        let mut global = Args::try_parse_from(words).expect("valid").global;
        settle(&mut global, environment, |_| true).map(|()| global)
    }

    #[test]
    fn variables_count_where_no_flag_stands_against_them() {
        let global = settled(&[], environment()).expect("no contradiction");
        assert_eq!(global.master, ["m:1", "m:2"]);
        assert_eq!(global.token_file, Some("/env.token".into()));
        assert_eq!((global.runtime_dir, global.home.is_some()), (None, true));
        for flag in ["--dir", "--pool", "--tenant", "--via"] {
            let global = settled(&[flag, "a"], environment()).expect("no contradiction");
            assert!(global.master.is_empty(), "{flag}");
            assert_eq!((global.token_file, global.socket), (None, None), "{flag}");
        }
        let global = settled(&["--master", "n:1"], environment()).expect("no contradiction");
        assert_eq!(global.master, ["n:1"]);
        assert_eq!(global.token_file, Some("/env.token".into()));
        let empty = Environment {
            masters: Some("".into()),
            dir: Some("".into()),
            ..Environment::default()
        };
        let global = settled(&[], empty).expect("no contradiction");
        assert!(global.master.is_empty() && global.dir.is_none());
    }

    #[test]
    fn a_pod_needs_no_flag_and_no_variable_for_its_token() {
        // As the operator writes them into the ConfigMap of a tenant.
        let pod = || Environment {
            masters: Some("p-master.apps.svc:7100".into()),
            socket: Some("/run/larder/apps.p/agent.sock".into()),
            tenant: Some("t".into()),
            ..Environment::default()
        };
        let global = settled(&[], pod()).expect("no contradiction");
        assert_eq!(global.token_file, Some(PROJECTED_TOKEN.into()));
        assert_eq!(global.master, ["p-master.apps.svc:7100"]);
        assert!(global.socket.is_some());
        let with_file = Environment {
            token_file: Some("/other".into()),
            ..pod()
        };
        let global = settled(&[], with_file).expect("no contradiction");
        assert_eq!(global.token_file, Some("/other".into()));
        let global = settled(&[], Environment::default()).expect("no contradiction");
        assert_eq!(global.token_file, None, "no pool is named");
        let words = ["larder", "ls"];
        let mut global = Args::try_parse_from(words).expect("valid").global;
        settle(&mut global, pod(), |_| false).expect("no contradiction");
        assert_eq!(global.token_file, None, "nothing is mounted");
    }

    #[test]
    fn flags_that_contradict_each_other_are_refused() {
        for flag in ["--dir", "--pool", "--tenant", "--via"] {
            let error = settled(&["--master", "n:1", flag, "a"], Environment::default());
            let error = error.expect_err("two pools").to_string();
            assert!(
                error.contains(flag) && error.contains("--master"),
                "{error}"
            );
        }
        assert!(settled(&["--master", ""], Environment::default()).is_err());
        let both = ["--via", "a", "--socket", "/s"];
        assert!(settled(&both, Environment::default()).is_err());
    }
}
