//! Tasks: copies and moves of objects between agents, which the pool does by itself.

use larder_types::{Key, TaskId};
use larder_wire::CallResult;
use larder_wire::limit::MAX_BATCH;
use larder_wire::master::{TaskCreate, TaskItem, TaskQuery, TaskStatus, TaskWish};
use serde::de::DeserializeOwned;

use crate::batch::cut;
use crate::connection::Request;
use crate::error::ClientError;
use crate::{Client, only};

/// What an item takes in a call besides its key, in bytes, at the most: three agents' names.
const ITEM_BYTES: usize = 3 * 260;

impl Client {
    /// Asks for a copy or a move of an object; [`Client::task_status`] says how it goes.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `NotFound`, `AgentUnknown`, `TooManyTasks` and others of
    /// [`crate::Reason`].
    pub async fn create_task(&self, key: Key, wish: TaskWish) -> Result<TaskId, ClientError> {
        only(self.create_tasks(vec![(key, wish)]).await)
    }

    /// Asks for copies and moves. Each result belongs to the item at its place.
    pub async fn create_tasks(
        &self,
        items: Vec<(Key, TaskWish)>,
    ) -> Vec<Result<TaskId, ClientError>> {
        let runs = cut(items
            .iter()
            .map(|(key, _)| key.as_bytes().len() + ITEM_BYTES));
        let mut results = Vec::with_capacity(items.len());
        let mut items = items.into_iter();
        for run in runs {
            let items: Vec<TaskItem> = items
                .by_ref()
                .take(run.len())
                .map(|(key, wish)| TaskItem { key, wish })
                .collect();
            let count = items.len();
            let request = Request::TaskCreate(TaskCreate { items });
            results.extend(self.call_each(request, count).await);
        }
        results
    }

    /// How a task stands.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `TaskUnknown` and others of [`crate::Reason`].
    pub async fn task_status(&self, task: TaskId) -> Result<TaskStatus, ClientError> {
        only(self.task_statuses(vec![task]).await)
    }

    /// How tasks stand. Each result belongs to the task at its place.
    pub async fn task_statuses(&self, tasks: Vec<TaskId>) -> Vec<Result<TaskStatus, ClientError>> {
        let mut results = Vec::with_capacity(tasks.len());
        for tasks in tasks.chunks(MAX_BATCH) {
            let (count, tasks) = (tasks.len(), tasks.to_vec());
            let request = Request::TaskQuery(TaskQuery { tasks });
            results.extend(self.call_each(request, count).await);
        }
        results
    }

    /// Makes a call whose answer has a result for each of `count` items.
    async fn call_each<T: DeserializeOwned>(
        &self,
        request: Request,
        count: usize,
    ) -> Vec<Result<T, ClientError>> {
        let called = self
            .inner
            .master
            .call::<Vec<CallResult<T>>>(request, self.deadline());
        match called.await {
            Ok(answered) if answered.answer.len() == count => {
                let answers = answered.answer.into_iter();
                answers.map(|one| one.map_err(ClientError::from)).collect()
            }
            Ok(_) => {
                let detail = "the number of results is wrong";
                let wrong = || Err(ClientError::Answer { detail });
                (0..count).map(|_| wrong()).collect()
            }
            Err(error) => (0..count).map(|_| Err(error.clone())).collect(),
        }
    }
}
