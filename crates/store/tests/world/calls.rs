//! Calls that run the world until they are answered, and the requests that tests make.

use larder_store::{ObjectStat, PutMode, Refusal, Reply, Request, Written};
use larder_types::layout::{self, BLOCK_BYTES};
use larder_types::{
    AgentId, Attributes, Digest, Extent, Key, Pin, Reason, SessionId, TenantId, Version,
};

use super::agent::SimAgent;
use super::{Answer, SESSION, World, key, tenant};

impl World {
    /// Asks and runs until it is answered.
    pub(crate) fn answer(&mut self, request: Request) -> Answer {
        let ticket = self.ask(request);
        self.settle();
        self.taken(ticket).expect("every request is answered")
    }

    /// Asks what must be refused; why it was.
    pub(crate) fn refusal(&mut self, request: Request) -> Refusal {
        self.answer(request).expect_err("it has to be refused")
    }

    /// As [`Self::refusal`], the reason only.
    pub(crate) fn reason(&mut self, request: Request) -> Reason {
        self.refusal(request).reason
    }

    /// Asks once, without running; why it was refused.
    pub(crate) fn leader_refuses(&mut self, request: Request) -> Reason {
        let ticket = self.ask(request);
        match self.taken(ticket) {
            Some(Err(refusal)) => refusal.reason,
            other => panic!("not refused: {other:?}"),
        }
    }

    /// A start that has to be granted.
    pub(crate) fn granted(&mut self, start: Request) -> (Version, Vec<Vec<Extent>>) {
        match self.answer(start) {
            Ok(Reply::PutGranted {
                version, replicas, ..
            }) => (version, replicas),
            other => panic!("not granted: {other:?}"),
        }
    }

    pub(crate) fn remove(name: &str, text: &str) -> Request {
        Request::Remove {
            tenant: tenant(name),
            key: key(text),
            if_unleased: false,
        }
    }

    pub(crate) fn get(name: &str, text: &str) -> Request {
        Request::Get {
            tenant: tenant(name),
            key: key(text),
        }
    }

    pub(crate) fn exists(&mut self, name: &str, text: &str) -> bool {
        let request = Request::Exists {
            tenant: tenant(name),
            key: key(text),
            lease: false,
        };
        self.answer(request) == Ok(Reply::Exists(true))
    }

    /// All keys of a tenant, by pages of seven.
    pub(crate) fn keys(&mut self, name: &str, prefix: &str) -> Vec<String> {
        let mut keys: Vec<Key> = Vec::new();
        loop {
            let (tenant, prefix) = (tenant(name), prefix.as_bytes().to_vec());
            let after = keys.last().cloned();
            match self.answer(Request::List {
                tenant,
                prefix,
                after,
                limit: 7,
            }) {
                Ok(Reply::Listed { entries, more }) => {
                    keys.extend(entries.into_iter().map(|(key, _)| key));
                    if !more {
                        return keys.iter().map(Key::to_string).collect();
                    }
                }
                other => panic!("not listed: {other:?}"),
            }
        }
    }

    pub(crate) fn start(name: &str, text: &str, size_bytes: u64) -> Request {
        Request::PutStart {
            session: SESSION,
            tenant: tenant(name),
            key: key(text),
            size_bytes,
            replicas: 1,
            preferred: vec![],
            mode: PutMode::Create,
            strict: true,
            extents_max: 1_000,
            attributes: Attributes::default(),
        }
    }

    /// A start that replaces what is there.
    pub(crate) fn upsert(name: &str, text: &str, size_bytes: u64) -> Request {
        let mut start = Self::start(name, text, size_bytes);
        if let Request::PutStart { mode, .. } = &mut start {
            *mode = PutMode::Upsert { if_unleased: false };
        }
        start
    }

    /// A start with these attributes.
    pub(crate) fn with(mut start: Request, said: Attributes) -> Request {
        if let Request::PutStart { attributes, .. } = &mut start {
            *attributes = said;
        }
        start
    }

    pub(crate) fn pin(name: &str, text: &str, pin: Pin) -> Request {
        Request::PinSet {
            tenant: tenant(name),
            key: key(text),
            pin,
        }
    }

    /// What is known of an object.
    pub(crate) fn stat(&mut self, name: &str, text: &str) -> ObjectStat {
        let request = Request::Stat {
            tenant: tenant(name),
            key: key(text),
        };
        match self.answer(request) {
            Ok(Reply::Stat(stat)) => *stat,
            other => panic!("no stat: {other:?}"),
        }
    }

    /// Removes all of a prefix by pages of seven keys; how many went and how many stayed.
    pub(crate) fn remove_prefix(
        &mut self,
        name: &str,
        prefix: &str,
        if_unleased: bool,
    ) -> (u64, u64) {
        let (mut after, mut sum) = (None, (0, 0));
        loop {
            let request = Request::RemovePrefix {
                tenant: tenant(name),
                prefix: prefix.as_bytes().to_vec(),
                after,
                limit: 7,
                if_unleased,
            };
            let Ok(Reply::RemovedSome {
                removed,
                skipped,
                last,
            }) = self.answer(request)
            else {
                panic!("pages are answered")
            };
            sum = (sum.0 + removed, sum.1 + skipped);
            if last.is_none() {
                return sum;
            }
            after = last;
        }
    }

    /// A whole put; the version and its extents, or why not.
    pub(crate) fn put(&mut self, start: Request) -> Result<(Version, Vec<Vec<Extent>>), Refusal> {
        let Request::PutStart {
            session,
            tenant,
            key,
            ..
        } = start.clone()
        else {
            unreachable!("puts begin with a start")
        };
        match self.answer(start)? {
            Reply::PutGranted {
                version, replicas, ..
            } => {
                assert!(
                    self.write(&tenant, version, &replicas),
                    "granted extents can be written"
                );
                let end = end(session, tenant, key, version, &replicas);
                assert_eq!(self.answer(end)?, Reply::Done);
                Ok((version, replicas))
            }
            other => panic!("a start is granted or refused, not {other:?}"),
        }
    }

    /// Writes all extents at their agents; whether all could be written.
    pub(crate) fn write(
        &mut self,
        tenant: &TenantId,
        version: Version,
        replicas: &[Vec<Extent>],
    ) -> bool {
        replicas.iter().flatten().all(|extent| {
            let agent = self.agent_mut(extent.slab.agent);
            agent.is_some_and(|agent| agent.write(tenant, extent, version))
        })
    }

    pub(crate) fn agent_mut(&mut self, id: AgentId) -> Option<&mut SimAgent> {
        self.agents.iter_mut().find(|agent| agent.id == Some(id))
    }
}

/// The end of a put with the receipts of all its extents.
pub(crate) fn end(
    session: SessionId,
    tenant: TenantId,
    key: Key,
    version: Version,
    replicas: &[Vec<Extent>],
) -> Request {
    let whole = digest_of(version);
    let written = replicas.iter().flat_map(|extents| receipts(whole, extents));
    let written = written.collect();
    Request::PutEnd {
        session,
        tenant,
        key,
        version,
        written,
    }
}

/// What agents sign for the extents of one replica of an object with this digest: however it is
/// cut, the same bytes lie in the same block.
pub(crate) fn receipts(whole: Digest, extents: &[Extent]) -> Vec<Written> {
    let size_bytes = extents.iter().map(|e| e.length_bytes).sum::<u64>();
    let block_at = |at: u64| {
        (
            at * BLOCK_BYTES,
            (size_bytes - at * BLOCK_BYTES).min(BLOCK_BYTES),
        )
    };
    let mut blocks: Vec<(u64, (Digest, u64))> = (0..layout::blocks(size_bytes))
        .map(block_at)
        .map(|(start, length)| (start, (Digest(whole.0.wrapping_mul(start | 1)), length)))
        .collect();
    // The last one makes the whole come to what it is to be.
    let joined = |blocks: &[(u64, (Digest, u64))]| {
        Digest::joined(blocks.iter().map(|(_, part)| *part)).expect("whole blocks")
    };
    let last = blocks.len() - 1;
    blocks[last].1.0 = Digest(0);
    blocks[last].1.0 = Digest(joined(&blocks).0 ^ whole.0);
    let mut start = 0;
    let mut receipt = |extent: &Extent| {
        let end = start + extent.length_bytes;
        let inside: Vec<_> = blocks
            .iter()
            .filter(|(at, _)| (start..end).contains(at))
            .copied()
            .collect();
        start = end;
        Written {
            extent: *extent,
            digest: joined(&inside),
        }
    };
    extents.iter().map(&mut receipt).collect()
}

/// The digest that a put of this version has in the tests.
pub(crate) fn digest_of(version: Version) -> larder_types::Digest {
    larder_types::Digest(version.counter ^ (version.epoch.term << 32))
}
