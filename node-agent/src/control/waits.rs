//! What the control thread waits for.

use std::collections::VecDeque;

use larder_telemetry::error_chain;
use larder_transfer::InventoryPage;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::Saved;
use crate::data::DataMessage;
use crate::error::AgentError;
use crate::step::{Event, WalkId};

/// Ends when the agent shall stop, also because nobody is left who could say so.
pub(super) async fn told_to_stop(stop: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Sends the oldest order when the data thread has room for it.
pub(super) async fn send_order(
    data: &mpsc::Sender<DataMessage>,
    orders: &mut VecDeque<DataMessage>,
) -> Result<(), AgentError> {
    let room = data
        .reserve()
        .await
        .map_err(|_| AgentError::Ended("data"))?;
    if let Some(order) = orders.pop_front() {
        room.send(order);
    }
    Ok(())
}

/// Waits for blocking work, if there is any.
pub(super) async fn finished<T>(
    work: &mut Option<JoinHandle<T>>,
) -> Result<T, tokio::task::JoinError> {
    match work {
        Some(running) => {
            let done = running.await;
            *work = None;
            done
        }
        None => std::future::pending().await,
    }
}

/// Waits for the answer of the data side. Without one, as when it ends, there is nothing to tell.
pub(super) async fn answered(fencing: &mut Option<oneshot::Receiver<()>>) {
    if let Some(answer) = fencing {
        let heard = answer.await;
        *fencing = None;
        if heard.is_ok() {
            return;
        }
    }
    std::future::pending().await
}

/// Waits for the page that the data side was asked for, if it was.
pub(super) async fn listed(
    listing: &mut Option<(WalkId, oneshot::Receiver<InventoryPage>)>,
) -> (WalkId, InventoryPage) {
    if let Some((walk, page)) = listing {
        let (walk, heard) = (*walk, page.await);
        *listing = None;
        if let Ok(page) = heard {
            return (walk, page);
        }
    }
    std::future::pending().await
}

pub(super) fn saved_event(saved: Saved) -> Event {
    match saved {
        Ok(Ok(epoch)) => Event::EpochSaved(epoch),
        Ok(Err(error)) => {
            tracing::error!("{}", error_chain(&error));
            Event::EpochNotSaved
        }
        Err(error) => {
            tracing::error!(%error, "saving the epoch broke off");
            Event::EpochNotSaved
        }
    }
}
