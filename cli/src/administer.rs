//! The admin port of a master, for commands of administrators.

use hyper::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::args::{Administration, Global};
use crate::document::{MasterDocument, MasterRole};
use crate::error::CliError;
use crate::fetch::send;
use crate::folder::RunFolder;
use crate::status::ask_roles;
use crate::target::token_text;

/// The admin port of the master that leads, and a token for it.
pub(crate) struct Administered {
    addr: String,
    token: String,
}

impl Administered {
    /// The one that the arguments name, or the leader of the pool of this machine.
    pub(crate) async fn find(
        global: &Global,
        administration: &Administration,
    ) -> Result<Self, CliError> {
        match (&administration.admin, &administration.admin_token_file) {
            (Some(addr), Some(file)) => Ok(Self {
                addr: addr.clone(),
                token: token_text(file)?,
            }),
            _ => Self::of_folder(global, administration).await,
        }
    }

    async fn of_folder(global: &Global, administration: &Administration) -> Result<Self, CliError> {
        if !global.master.is_empty() {
            let message = "with --master, say with --admin and --admin-token-file whom to ask";
            return Err(CliError::Usage(message.to_owned()));
        }
        let mut document = RunFolder::find(global)?.document()?;
        ask_roles(&mut document).await;
        let leads = |master: &&MasterDocument| master.role == MasterRole::Leader;
        let leader = document.masters.iter().find(leads);
        let Some(leader) = leader.or_else(|| document.masters.first()) else {
            let message = format!("pool {} has no master", document.pool);
            return Err(CliError::NoPool(message));
        };
        let file = administration.admin_token_file.as_ref();
        let Some(file) = file.or_else(|| document.tokens.get("admin")) else {
            let message = "the run folder names no administrator's token; use --admin-token-file";
            return Err(CliError::Usage(message.to_owned()));
        };
        Ok(Self {
            addr: leader.admin_addr.clone(),
            token: token_text(file)?,
        })
    }

    /// Gets a document.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, CliError> {
        let value = self.call(Method::GET, path, None).await?;
        serde_json::from_value(value).map_err(|error| {
            let addr = &self.addr;
            let why = format!("the master at {addr} answers {path} in another form: {error}");
            CliError::NoPool(why)
        })
    }

    /// Changes something that needs no body.
    pub(crate) async fn change(&self, method: Method, path: &str) -> Result<(), CliError> {
        self.call(method, path, None).await.map(drop)
    }

    /// Asks for something new.
    pub(crate) async fn post(&self, path: &str, said: &Value) -> Result<Value, CliError> {
        self.call(Method::POST, path, Some(said)).await
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        said: Option<&Value>,
    ) -> Result<Value, CliError> {
        let (status, value) = send(&self.addr, (method, path), said, &self.token)
            .await
            .map_err(|why| CliError::NoPool(format!("{path} is not to be had: {why}")))?;
        if status.is_success() {
            return Ok(value);
        }
        Err(refusal(&self.addr, path, status, &value))
    }
}

fn refusal(addr: &str, path: &str, status: StatusCode, answer: &Value) -> CliError {
    let said = answer["error"]["message"].as_str();
    let said = said.unwrap_or("it gave no reason; check the address");
    CliError::Refused {
        status: status.as_u16(),
        message: format!("the master at {addr} answers {path} with {status}: {said}"),
    }
}
