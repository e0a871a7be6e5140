//! Which pool, tenant and agent a call goes to.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use larder_client::{Client, ClientOptions, Credential};
use larder_wire::limit::MAX_CREDENTIAL_BYTES;

use crate::args::Global;
use crate::document::{AgentDocument, PoolDocument};
use crate::environment::PROJECTED_TOKEN;
use crate::error::CliError;
use crate::folder::RunFolder;
use crate::output::note;

/// The longest token file that is read, in bytes: a credential, and some space around it.
const TOKEN_MAX_BYTES: u64 = MAX_CREDENTIAL_BYTES as u64 + 1024;

/// Connects as the arguments say.
pub(crate) async fn connect(global: &Global, replicas: Option<u8>) -> Result<Client, CliError> {
    let mut options = if global.master.is_empty() {
        from_folder(global)?
    } else {
        direct(global)?
    };
    options.default_deadline = global.deadline;
    options.replicas = replicas;
    options.name = format!("larder-cli-{}", std::process::id());
    options.wait_for_master = false;
    let wants_local = options.agent_socket.is_some();
    let client = Client::connect(options).await?;
    if let Some(why) = client.why_not_local().filter(|_| wants_local) {
        note(&format!("note: bytes go by tcp, because {why}"));
    }
    Ok(client)
}

fn direct(global: &Global) -> Result<ClientOptions, CliError> {
    let Some(token_file) = &global.token_file else {
        return Err(CliError::Usage(format!(
            "--master needs --token-file (or LARDER_TOKEN_FILE) with the token of a tenant; in a \
             pod, mount a projected token at {PROJECTED_TOKEN}"
        )));
    };
    let mut options = ClientOptions::new(global.master.clone(), read_token(token_file)?);
    options.agent_socket.clone_from(&global.socket);
    Ok(options)
}

fn from_folder(global: &Global) -> Result<ClientOptions, CliError> {
    let document = RunFolder::find(global)?.document()?;
    let token_file = match &global.token_file {
        Some(file) => file,
        None => token_of(&document, global.tenant.as_deref())?,
    };
    let masters = document
        .masters
        .iter()
        .map(|master| master.client_addr.clone())
        .collect();
    let mut options = ClientOptions::new(masters, read_token(token_file)?);
    let agent = agent_of(&document, global.via.as_deref())?;
    options.agent_socket = match (&global.socket, agent) {
        (Some(socket), _) => Some(socket.clone()),
        (None, agent) => agent.map(|agent| agent.socket.clone()),
    };
    Ok(options)
}

/// The token of a tenant, or of the only one.
fn token_of<'a>(document: &'a PoolDocument, tenant: Option<&str>) -> Result<&'a PathBuf, CliError> {
    let tenants: Vec<&str> = document.tenants().collect();
    let name = match (tenant, tenants.as_slice()) {
        (Some(tenant), _) => tenant,
        (None, [one]) => one,
        (None, []) => {
            let pool = &document.pool;
            return Err(CliError::Usage(format!(
                "pool {pool} has no tenants; add a CacheTenant to its file"
            )));
        }
        (None, _) => {
            return Err(CliError::Usage(format!(
                "say with --tenant who acts: {}",
                tenants.join(", ")
            )));
        }
    };
    document
        .tokens
        .get(name)
        .filter(|_| tenants.contains(&name))
        .ok_or_else(|| {
            CliError::Usage(format!(
                "pool {} has no tenant '{name}'; it has: {}",
                document.pool,
                tenants.join(", ")
            ))
        })
}

/// The agent whose socket is used; `None` for tcp only.
fn agent_of<'a>(
    document: &'a PoolDocument,
    via: Option<&str>,
) -> Result<Option<&'a AgentDocument>, CliError> {
    match via {
        Some("none") => Ok(None),
        None => Ok(document.agents.first()),
        Some(name) => match document.agents.iter().find(|agent| agent.name == name) {
            Some(agent) => Ok(Some(agent)),
            None => {
                let names: Vec<&str> = document
                    .agents
                    .iter()
                    .map(|agent| agent.name.as_str())
                    .collect();
                Err(CliError::Usage(format!(
                    "pool {} has no agent '{name}'; it has: {}, or use none",
                    document.pool,
                    names.join(", ")
                )))
            }
        },
    }
}

/// Reads a token.
fn read_token(path: &Path) -> Result<Credential, CliError> {
    let (text, is_file) = read_text(path)?;
    let credential = Credential::new(&text)?;
    // What is no plain file, as a pipe, can be read only once.
    Ok(if is_file {
        credential.renewed_from(path.to_owned())
    } else {
        credential
    })
}

/// Reads a token for the administration port.
pub(crate) fn token_text(path: &Path) -> Result<String, CliError> {
    Ok(read_text(path)?.0.trim().to_owned())
}

/// Reads the text of a token, and whether it stands in a plain file. Says so if others can read it
/// too: it still works, and some cannot help it.
fn read_text(path: &Path) -> Result<(String, bool), CliError> {
    let wrong = |source| CliError::file("read the token", path, source);
    let file = File::open(path).map_err(wrong)?;
    let facts = file.metadata().map_err(wrong)?;
    let mut bytes = Vec::new();
    // Its length is not asked for: what is no plain file has none.
    let read = file.take(TOKEN_MAX_BYTES + 1).read_to_end(&mut bytes);
    let length_bytes = read.map_err(wrong)?;
    if length_bytes as u64 > TOKEN_MAX_BYTES {
        return Err(CliError::Usage(format!(
            "{} is too long for a token, which has at most {MAX_CREDENTIAL_BYTES} bytes",
            path.display()
        )));
    }
    let text = String::from_utf8(bytes).map_err(|_| {
        CliError::Usage(format!("{} holds no token: it is no text", path.display()))
    })?;
    let mode = facts.permissions().mode() & 0o777;
    if facts.is_file() && mode & 0o077 != 0 && !is_projected(path) {
        let path = path.display();
        note(&format!(
            "warning: others may use the token in {path} (mode {mode:04o}); run `chmod 600 {path}`"
        ));
    }
    Ok((text, facts.is_file()))
}

/// Whether kubelet put a file there: its mode is not for the user to change, and only the
/// processes of the pod can come near it.
fn is_projected(path: &Path) -> bool {
    let folder = path.parent();
    folder.is_some_and(|folder| folder.join("..data").is_symlink())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn document(tenants: &[&str]) -> PoolDocument {
        let tokens = tenants.iter().chain(&["admin", "operator"]);
        let agent = |n: u32| AgentDocument {
            name: format!("p-{n}"),
            pid: n,
            client_addr: String::new(),
            socket: format!("/s-{n}").into(),
            metrics_addr: String::new(),
        };
        PoolDocument {
            pool: "p".to_owned(),
            masters: Vec::new(),
            agents: vec![agent(0), agent(1)],
            tokens: tokens
                .map(|name| ((*name).to_owned(), PathBuf::from(name)))
                .collect::<BTreeMap<_, _>>(),
        }
    }

    #[test]
    fn the_only_tenant_need_not_be_named() {
        let one = document(&["a"]);
        assert_eq!(token_of(&one, None).expect("one"), Path::new("a"));
        let two = document(&["a", "b"]);
        assert_eq!(token_of(&two, Some("b")).expect("there"), Path::new("b"));
        let error = token_of(&two, None).expect_err("two").to_string();
        assert!(error.contains("a, b"), "{error}");
        let error = token_of(&two, Some("c"))
            .expect_err("not there")
            .to_string();
        assert!(
            error.contains("no tenant 'c'") && error.contains("a, b"),
            "{error}"
        );
        assert!(
            token_of(&two, Some("admin")).is_err(),
            "a role is no tenant"
        );
        assert!(token_of(&document(&[]), None).is_err());
    }

    #[test]
    fn a_file_of_kubelet_is_told_from_others() {
        let folder = tempfile::tempdir().expect("a folder");
        let token = folder.path().join("token");
        std::fs::write(&token, "t").expect("written");
        assert!(!is_projected(&token));
        std::os::unix::fs::symlink("..2026", folder.path().join("..data")).expect("linked");
        assert!(is_projected(&token));
    }

    #[test]
    fn the_agent_is_the_first_or_the_named_or_none() {
        let document = document(&["a"]);
        let name = |via| agent_of(&document, via).map(|agent| agent.map(|a| a.name.clone()));
        assert_eq!(name(None).expect("first"), Some("p-0".to_owned()));
        assert_eq!(name(Some("p-1")).expect("there"), Some("p-1".to_owned()));
        assert_eq!(name(Some("none")).expect("tcp"), None);
        assert!(
            name(Some("p-7"))
                .expect_err("not there")
                .to_string()
                .contains("p-0, p-1")
        );
    }
}
