//! `larder tasks`: copies and moves that somebody asked for.

use hyper::Method;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::administer::Administered;
use crate::args::{Global, TaskNumber, Tasks, TasksList};
use crate::error::CliError;
use crate::output::Output;

/// The most tasks of one page.
const PAGE_TASKS: usize = 1_000;

/// A task as the master shows it. The number is a text, since it has more digits than numbers of
/// JSON keep everywhere.
#[derive(Debug, Serialize, Deserialize)]
struct Task {
    task: String,
    tenant: String,
    key: Option<String>,
    hex: String,
    wish: String,
    source: Option<String>,
    targets: Vec<Option<String>>,
    status: String,
    reason: Option<String>,
    advice: Option<String>,
}

#[derive(Deserialize)]
struct Page {
    tasks: Vec<Task>,
    next: Option<String>,
}

/// Does what was asked.
pub(crate) async fn tasks(
    global: &Global,
    tasks: &Tasks,
    output: &mut Output,
) -> Result<u8, CliError> {
    match tasks {
        Tasks::List(wanted) => list(global, wanted, output).await,
        Tasks::Show(number) => {
            let master = Administered::find(global, &number.administration).await?;
            let task: Task = master.get(&path(number)).await?;
            output.result(&task, &line(&task))?;
            Ok(0)
        }
        Tasks::Cancel(number) => {
            let master = Administered::find(global, &number.administration).await?;
            master.change(Method::DELETE, &path(number)).await?;
            let task: Task = master.get(&path(number)).await?;
            output.result(&task, &line(&task))?;
            Ok(0)
        }
    }
}

fn path(number: &TaskNumber) -> String {
    format!("/v1/tasks/{}", number.task)
}

async fn list(global: &Global, wanted: &TasksList, output: &mut Output) -> Result<u8, CliError> {
    let master = Administered::find(global, &wanted.administration).await?;
    let of = wanted.of.as_ref();
    let of = of.map_or_else(String::new, |tenant| format!("&tenant={}", tenant.as_str()));
    let most = usize::try_from(wanted.limit).unwrap_or(PAGE_TASKS);
    let mut found: Vec<Task> = Vec::new();
    let mut next = Some(wanted.after.unwrap_or(0).to_string());
    while let (Some(after), 1..) = (&next, most.saturating_sub(found.len())) {
        let limit = most.saturating_sub(found.len()).min(PAGE_TASKS);
        let open = wanted.open;
        let path = format!("/v1/tasks?after={after}&limit={limit}&open={open}{of}");
        let page: Page = master.get(&path).await?;
        found.extend(page.tasks);
        next = page.next;
    }
    let mut lines: Vec<String> = found.iter().map(line).collect();
    if lines.is_empty() {
        lines.push("no tasks".to_owned());
    } else if let Some(next) = &next {
        lines.push(format!("more with --after {next}"));
    }
    output.result(&json!({ "tasks": found, "next": next }), &lines.join("\n"))?;
    Ok(0)
}

fn line(task: &Task) -> String {
    let gone = |agent: &Option<String>| agent.clone().unwrap_or_else(|| "a lost agent".to_owned());
    let targets: Vec<String> = task.targets.iter().map(gone).collect();
    let key = task
        .key
        .clone()
        .unwrap_or_else(|| format!("hex:{}", task.hex));
    let from = match (task.wish.as_str(), &task.source) {
        ("move", source) => format!(" from {}", gone(source)),
        _ => String::new(),
    };
    let mut line = format!(
        "{}  {:<10}  {} {key} of {}{from} to {}",
        task.task,
        task.status,
        task.wish,
        task.tenant,
        targets.join(", ")
    );
    if let (Some(reason), Some(advice)) = (&task.reason, &task.advice) {
        line += &format!(": {reason}: {advice}");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_and_how_it_went() {
        let task = Task {
            task: "7".to_owned(),
            tenant: "a".to_owned(),
            key: None,
            hex: "00ff".to_owned(),
            wish: "move".to_owned(),
            source: Some("n1".to_owned()),
            targets: vec![None],
            status: "failed".to_owned(),
            reason: Some("task_canceled".to_owned()),
            advice: Some("ended".to_owned()),
        };
        assert_eq!(
            line(&task),
            "7  failed      move hex:00ff of a from n1 to a lost agent: task_canceled: ended"
        );
    }
}
