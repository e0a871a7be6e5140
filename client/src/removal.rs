//! Removals: of objects by key, and of all whose keys start alike.

use larder_types::Key;
use larder_wire::master::{Remove, RemovePrefix, RemovedSome};

use crate::connection::Request;
use crate::error::ClientError;
use crate::{Client, only};

/// Keys that one call of a removal by prefix looks at.
const PAGE_KEYS: u32 = 1000;

impl Client {
    /// Removes an object. Nobody can read it when this returns.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `NotFound` and others of [`crate::Reason`],
    /// [`ClientError::ConnectionLost`] if the master went away before it answered: the object may
    /// be removed or not. It is not removed once more, since the key may hold another one by now.
    pub async fn remove(&self, key: Key) -> Result<(), ClientError> {
        only(self.remove_batch(vec![key]).await)
    }

    /// Removes objects. Each result belongs to the key at its place.
    pub async fn remove_batch(&self, keys: Vec<Key>) -> Vec<Result<(), ClientError>> {
        self.remove_batch_with(keys, false).await
    }

    /// As [`Client::remove_batch`]; with `if_unleased`, objects that a reader's lease protects are
    /// refused with `LeaseHeld`.
    pub async fn remove_batch_with(
        &self,
        keys: Vec<Key>,
        if_unleased: bool,
    ) -> Vec<Result<(), ClientError>> {
        self.per_key(keys, |keys| Request::Remove(Remove { keys, if_unleased }))
            .await
    }

    /// Removes the next objects of a prefix, of up to a thousand keys after `after`. To go on, ask
    /// again after [`RemovedSome::last`].
    ///
    /// # Errors
    /// As [`Client::remove`].
    pub async fn remove_some(
        &self,
        prefix: &[u8],
        after: Option<Key>,
        if_unleased: bool,
    ) -> Result<RemovedSome, ClientError> {
        let request = Request::RemovePrefix(RemovePrefix {
            prefix: prefix.to_vec(),
            after,
            limit: PAGE_KEYS,
            if_unleased,
        });
        let answered = self.inner.master.call(request, self.deadline()).await?;
        Ok(answered.answer)
    }

    /// Removes every object whose key starts with `prefix`, of the caller's tenant only; how many
    /// went, and how many stayed because a lease protects them. Each page has a deadline of its
    /// own.
    ///
    /// # Errors
    /// As [`Client::remove`]; what was removed before stays removed.
    pub async fn remove_prefix(
        &self,
        prefix: &[u8],
        if_unleased: bool,
    ) -> Result<(u64, u64), ClientError> {
        let (mut after, mut removed, mut skipped) = (None, 0, 0);
        loop {
            let some = self.remove_some(prefix, after, if_unleased).await?;
            removed += some.removed;
            skipped += some.skipped;
            if some.last.is_none() {
                return Ok((removed, skipped));
            }
            after = some.last;
        }
    }
}
