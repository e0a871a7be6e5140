//! `larder status`: the processes of a pool of this machine, or the connection to another one.

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::args::Global;
use crate::bytes_text::show_bytes;
use crate::document::{MasterRole, PoolDocument};
use crate::error::CliError;
use crate::fetch::get_json;
use crate::folder::RunFolder;
use crate::output::{Output, note};
use crate::target::connect;

/// Prints the document of the pool.
pub(crate) async fn status(global: &Global, output: &mut Output) -> Result<u8, CliError> {
    if !global.master.is_empty() {
        return connection(global, output).await;
    }
    let mut document = RunFolder::find(global)?.document()?;
    ask_roles(&mut document).await;
    output.result(&document, &show(&document))?;
    Ok(0)
}

/// Prints how this client reaches a pool that is named by its masters.
async fn connection(global: &Global, output: &mut Output) -> Result<u8, CliError> {
    let client = connect(global, None).await?;
    let usage = client.usage().await?;
    let why = client.why_not_local();
    let value = json!({
        "masters": global.master,
        "principal": client.principal(),
        "local": why.is_none(),
        "why_not_local": why,
        "pool": {
            "capacity_bytes": usage.pool_capacity_bytes,
            "agents": usage.agents,
            "replica_factor": usage.replica_factor,
        },
    });
    let local = why.map_or_else(
        || "by shared memory where the object is on this node".to_owned(),
        |why| format!("by tcp, because {why}"),
    );
    let human = format!(
        "connected  as {} to {}\nbytes      {local}\npool       {} on {} agents",
        client.principal(),
        global.master.join(", "),
        show_bytes(usage.pool_capacity_bytes),
        usage.agents,
    );
    output.result(&value, &human)?;
    Ok(0)
}

/// Asks each master for its role. One that does not answer is starting, as far as anybody can
/// tell, and a note says why.
pub(crate) async fn ask_roles(document: &mut PoolDocument) {
    for (name, why) in silent_masters(document).await {
        note(&format!("note: master {name} does not answer ({why})"));
    }
}

/// Asks all masters at once for their roles, and enters them; those that do not answer, and why.
pub(crate) async fn silent_masters(document: &mut PoolDocument) -> Vec<(String, String)> {
    let token = document
        .tokens
        .get("operator")
        .and_then(|path| std::fs::read_to_string(path).ok())
        .unwrap_or_default();
    let token = token.trim();
    let asked = document
        .masters
        .iter()
        .map(|master| get_json(&master.admin_addr, "/v1/status", token));
    let answers = join_all(asked).await;
    let mut silent = Vec::new();
    for (master, answer) in document.masters.iter_mut().zip(answers) {
        master.role = match answer {
            Ok(answer) => role_of(&answer),
            Err(why) => {
                silent.push((master.name.clone(), why));
                MasterRole::Starting
            }
        };
    }
    silent
}

/// Whether one master leads and all others stand by.
pub(crate) fn is_led(document: &PoolDocument) -> bool {
    let with = |role| {
        document
            .masters
            .iter()
            .filter(|one| one.role == role)
            .count()
    };
    with(MasterRole::Leader) == 1 && with(MasterRole::Starting) == 0
}

fn role_of(answer: &Value) -> MasterRole {
    match answer.get("role").and_then(Value::as_str) {
        Some("leader" | "leading") => MasterRole::Leader,
        Some("standby") => MasterRole::Standby,
        _ => MasterRole::Starting,
    }
}

/// The document for people.
pub(crate) fn show(document: &PoolDocument) -> String {
    let mut lines = vec![format!("pool {}", document.pool)];
    for master in &document.masters {
        let role = match master.role {
            MasterRole::Leader => "leader",
            MasterRole::Standby => "standby",
            MasterRole::Starting => "starting",
        };
        lines.push(format!(
            "  master  {}  pid {}  {role}  clients {}  admin {}",
            master.name, master.pid, master.client_addr, master.admin_addr
        ));
    }
    for agent in &document.agents {
        lines.push(format!(
            "  agent   {}  pid {}  data {}  metrics {}  socket {}",
            agent.name,
            agent.pid,
            agent.client_addr,
            agent.metrics_addr,
            agent.socket.display()
        ));
    }
    let tenants: Vec<&str> = document.tenants().collect();
    let tenants = if tenants.is_empty() {
        "none".to_owned()
    } else {
        tenants.join(", ")
    };
    lines.push(format!("  tenants {tenants}"));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pool_is_led_by_one_and_nobody_is_missing() {
        use MasterRole::{Leader, Standby, Starting};
        for (roles, expected) in [
            (&[Leader][..], true),
            (&[Standby, Leader, Standby], true),
            (&[Standby, Standby, Standby], false),
            (&[Leader, Standby, Starting], false),
            (&[Leader, Leader, Standby], false),
        ] {
            let master = |role: &MasterRole| crate::document::MasterDocument {
                name: String::new(),
                pid: 1,
                role: *role,
                client_addr: String::new(),
                admin_addr: String::new(),
            };
            let document = PoolDocument {
                pool: String::new(),
                masters: roles.iter().map(master).collect(),
                agents: Vec::new(),
                tokens: std::collections::BTreeMap::new(),
            };
            assert_eq!(is_led(&document), expected, "{roles:?}");
        }
    }

    #[test]
    fn roles_are_read_from_the_master() {
        assert_eq!(role_of(&json!({ "role": "leader" })), MasterRole::Leader);
        assert_eq!(role_of(&json!({ "role": "standby" })), MasterRole::Standby);
        for other in [json!({ "role": "stopping" }), json!({}), json!([])] {
            assert_eq!(role_of(&other), MasterRole::Starting);
        }
    }
}
