//! Answers that tell of many objects, cut by bytes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use larder_store::{ObjectStat as StoreStat, Reply as StoreReply, State};
use larder_types::{AgentId, AgentName, Key};
use larder_wire::limit::MAX_BODY_BYTES;
use larder_wire::master::{Listed, ListedStats, ObjectStat, Stats};

use super::answer::unfit;
use crate::calls::ItemResult;

/// The most bytes of keys in one list: with the sizes and lengths beside 1,000 keys it stays
/// below [`MAX_BODY_BYTES`].
const LISTED_MAX_BYTES: usize = MAX_BODY_BYTES as usize - 64 * 1024;
/// What a list says of an object besides its key and its agents' names, in bytes, at the most: a
/// group of 128 bytes and a dozen numbers.
const STAT_BYTES: usize = 256;

/// Cuts a list by bytes: a thousand of the longest keys are four bodies long.
pub(super) fn listed(mut entries: Vec<(Key, u64)>, mut more: bool) -> Listed {
    let mut bytes = 0;
    let fit = entries.iter().take_while(|(key, _)| {
        bytes += key.as_bytes().len() + 16;
        bytes <= LISTED_MAX_BYTES
    });
    let fit = fit.count();
    more |= fit < entries.len();
    entries.truncate(fit);
    Listed { entries, more }
}

/// Names of agents that objects name, each once.
#[derive(Default)]
struct AgentNames(BTreeMap<AgentId, AgentName>);

impl AgentNames {
    /// Adds the agents of an object; how many bytes their names take.
    fn add(&mut self, stat: &StoreStat, state: &State) -> usize {
        let mut bytes = 0;
        for agent in &stat.agents {
            if let (Entry::Vacant(place), Some(known)) = (self.0.entry(*agent), state.agent(*agent))
            {
                bytes += known.name().as_str().len() + 8;
                place.insert(known.name().clone());
            }
        }
        bytes
    }

    fn into_list(self) -> Vec<(AgentId, AgentName)> {
        self.0.into_iter().collect()
    }
}

fn object_stat(stat: StoreStat) -> ObjectStat {
    ObjectStat {
        version: stat.version,
        size_bytes: stat.size_bytes,
        digest: stat.digest,
        agents: stat.agents,
        wanted: stat.wanted,
        attributes: stat.attributes,
        pin_left_ms: stat.pin_left_ms,
        leased: stat.leased,
    }
}

pub(super) fn stats(results: Vec<ItemResult>, state: &State) -> Stats {
    let mut names = AgentNames::default();
    let objects = results.into_iter().map(|result| match result? {
        StoreReply::Stat(stat) => {
            names.add(&stat, state);
            Ok(object_stat(*stat))
        }
        _ => unfit(),
    });
    let objects = objects.collect();
    Stats {
        agents: names.into_list(),
        objects,
    }
}

/// As [`listed`]: cut by bytes, those of the agents' names included.
pub(super) fn listed_stats(
    found: Vec<(Key, StoreStat)>,
    mut more: bool,
    state: &State,
) -> ListedStats {
    let mut names = AgentNames::default();
    let (mut bytes, mut entries) = (0, Vec::with_capacity(found.len()));
    for (key, stat) in found {
        bytes += key.as_bytes().len() + STAT_BYTES + names.add(&stat, state);
        if bytes > LISTED_MAX_BYTES {
            more = true;
            break;
        }
        entries.push((key, object_stat(stat)));
    }
    ListedStats {
        agents: names.into_list(),
        entries,
        more,
    }
}
