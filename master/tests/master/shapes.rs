//! Calls of a right form that ask for what cannot be: each has an answer, and the master goes on.

use larder_types::{
    AgentId, AgentName, Attributes, CopyId, DataType, Digest, Epoch, Extent, Incarnation, Pin,
    Registration, SegmentGeneration, SegmentId, SlabRef, TaskId, Version,
};
use larder_wire::agent::{Done, Event, Heartbeat, SegmentOffer, Unmount};
use larder_wire::events::{Sequence, Subscribe};
use larder_wire::frame::{FLAG_REPLY, NO_DEADLINE};
use larder_wire::master::{
    Exists, Get, List, ListStats, Pin as PinCall, PutEnd, PutEndItem, PutMode, PutRevoke, PutStart,
    Remove, RemovePrefix, Stat, TaskCreate, TaskItem, TaskQuery, TaskWish, Usage,
};
use larder_wire::{AgentKey, Kind, Receipt};
use serde::Serialize;

use crate::peer::{AgentPeer, Client, Peer, end_item, key, mount, start_call};
use crate::rig::{Rig, soon};

const HIGHEST: Epoch = Epoch {
    generation: u64::MAX,
    term: u64::MAX,
};
const LAST: Version = Version {
    epoch: HIGHEST,
    counter: u64::MAX,
};

fn nowhere() -> Extent {
    Extent {
        slab: slab(),
        offset_bytes: u64::MAX,
        length_bytes: u64::MAX,
    }
}

fn slab() -> SlabRef {
    SlabRef {
        agent: AgentId(u32::MAX),
        segment: SegmentId(u32::MAX),
        index: u16::MAX,
        registration: Registration(u64::MAX),
    }
}

fn name(text: &str) -> AgentName {
    AgentName::new(text).expect("a name")
}

/// Sends a call and waits for its answer, whatever it is.
async fn ask(peer: &mut Peer, kind: Kind, body: &impl Serialize) {
    peer.send(kind, body, NO_DEADLINE).await;
    let answered = async {
        loop {
            match peer.read().await {
                Some((header, _)) if header.has(FLAG_REPLY) => break true,
                Some(_) => {}
                None => break false,
            }
        }
    };
    assert!(soon(kind.name(), answered).await, "no answer to {kind:?}");
}

/// As [`ask`], as a client of its own: what one shape does to its connection hurts no other.
async fn say(rig: &Rig, kind: Kind, body: &impl Serialize) {
    ask(&mut Client::connect(rig, "a").await.0, kind, body).await;
}

/// Calls about keys and prefixes, twice the same ones, with empty and endless bounds.
async fn odd_reads(rig: &Rig) {
    let twice = || vec![key("k"), key("k"), key("none")];
    say(rig, Kind::Get, &Get { keys: vec![] }).await;
    say(rig, Kind::Get, &Get { keys: twice() }).await;
    let (keys, lease) = (twice(), true);
    say(rig, Kind::Exists, &Exists { keys, lease }).await;
    say(rig, Kind::Stat, &Stat { keys: twice() }).await;
    let (keys, if_unleased) = (twice(), true);
    say(rig, Kind::Remove, &Remove { keys, if_unleased }).await;
    let pins = [Pin::Hard, Pin::Soft { ttl_ms: u64::MAX }, Pin::None];
    let items = pins.map(|pin| (key("k"), pin)).to_vec();
    say(rig, Kind::Pin, &PinCall { items }).await;
    for (prefix, limit) in [(vec![], 0), (vec![0xff; 4096], u32::MAX)] {
        let after = Some(key("zzz"));
        let list = List {
            prefix: prefix.clone(),
            after: after.clone(),
            limit,
        };
        say(rig, Kind::List, &list).await;
        let list = ListStats {
            prefix: prefix.clone(),
            after: after.clone(),
            limit,
        };
        say(rig, Kind::ListStats, &list).await;
        let remove = RemovePrefix {
            prefix,
            after,
            limit,
            if_unleased: false,
        };
        say(rig, Kind::RemovePrefix, &remove).await;
    }
}

/// Tasks that nobody can do, and events from a time that will never be.
async fn odd_tasks(rig: &Rig) {
    say(rig, Kind::Usage, &Usage {}).await;
    let wishes = [
        TaskWish::Copy { targets: vec![] },
        TaskWish::Copy {
            targets: vec![name("node-0"); 300],
        },
        TaskWish::Move {
            source: name("node-0"),
            target: name("node-0"),
        },
    ];
    let items = wishes.map(|wish| TaskItem {
        key: key("k"),
        wish,
    });
    let items = items.to_vec();
    say(rig, Kind::TaskCreate, &TaskCreate { items }).await;
    let tasks = vec![TaskId(0), TaskId(u64::MAX)];
    say(rig, Kind::TaskQuery, &TaskQuery { tasks }).await;
    let from = Some(Sequence {
        epoch: HIGHEST,
        counter: u64::MAX,
    });
    let wait_ms = 0;
    say(rig, Kind::Subscribe, &Subscribe { from, wait_ms }).await;
}

#[tokio::test]
async fn b02_no_call_of_a_client_ends_the_master() {
    let rig = Rig::start().await;
    let agent = AgentPeer::mount(&rig, "node-0", 5).await.serve();
    let mut good = Client::connect(&rig, "a").await;
    let grant = good.start_one("k", 1000).await.expect("granted");
    let forged = Receipt::sign(
        Incarnation(u64::MAX),
        nowhere(),
        LAST,
        Digest(u64::MAX),
        &AgentKey::new([0; 32], u32::MAX),
    );

    // Puts: of one key twice, of every size, number, pin and mode that a body can say.
    let mut start = start_call(&["k", "k", "x", "x", "x"], u64::MAX);
    for (at, item) in start.items.iter_mut().enumerate() {
        item.size_bytes = [0, 1, u64::MAX, u64::MAX / 2, 1 << 40][at];
        item.replicas = [0, 1, 3, 4, u8::MAX][at];
        item.strict = at % 2 == 0;
        item.mode = PutMode::Upsert {
            if_unleased: at % 2 == 1,
        };
        item.preferred = vec![name("nobody"), name("node-0"), name("node-0")];
        item.attributes = Attributes {
            pin: Pin::Soft { ttl_ms: u64::MAX },
            data_type: DataType::default(),
            ..Attributes::default()
        };
    }
    say(&rig, Kind::PutStart, &start).await;
    say(&rig, Kind::PutStart, &PutStart { items: vec![] }).await;
    let end = |version, receipts: Vec<Receipt>| PutEndItem {
        key: key("k"),
        version,
        receipts,
    };
    let honest = end_item("k", &grant, &[&agent]);
    let many = vec![forged.clone(); 8];
    let items = vec![
        end(LAST, vec![]),
        end(Version::default(), many.clone()),
        end(grant.version, many),
        end(grant.version, vec![]),
        honest.clone(),
        honest.clone(),
    ];
    say(&rig, Kind::PutEnd, &PutEnd { items }).await;
    let items = vec![(key("k"), LAST), (key("none"), Version::default())];
    say(&rig, Kind::PutRevoke, &PutRevoke { items }).await;

    odd_reads(&rig).await;
    odd_tasks(&rig).await;

    // The put of the good client was not hurt by any of it.
    assert_eq!(good.end_one(honest).await, Ok(()));
    good.get(&["k"]).await.remove(0).expect("readable");
    rig.check().await;
}

/// What an agent may say of things that were never asked of it.
fn odd_events() -> Vec<Event> {
    vec![
        Event::SlabReady { slab: slab() },
        Event::SlabFailed {
            slab: slab(),
            detail: "x".repeat(5_000),
        },
        Event::SlabReturned { slab: slab() },
        Event::Released {
            extent: nowhere(),
            version: LAST,
        },
        Event::Copied {
            copy: CopyId(LAST),
            digest: Digest(u64::MAX),
        },
        Event::CopyFailed {
            copy: CopyId(LAST),
            detail: String::new(),
        },
    ]
}

#[tokio::test]
async fn b02_no_word_of_an_agent_ends_the_master() {
    let rig = Rig::start().await;
    let agent = AgentPeer::mount(&rig, "node-0", 5).await.serve();
    let mut good = Client::connect(&rig, "a").await;
    good.put("k", 1000, &[&agent]).await.expect("room");
    let offer = |ordinal, slabs, slab_bytes| SegmentOffer {
        ordinal,
        generation: SegmentGeneration(u64::MAX),
        slabs,
        slab_bytes,
        numa: u16::MAX,
    };
    for segments in [
        vec![],
        vec![offer(u16::MAX, 0, 0)],
        vec![offer(0, u32::MAX, u64::MAX)],
        vec![offer(0, 1, 1), offer(0, 1, 1)],
        vec![offer(1, u32::MAX, 1 << 40); 300],
    ] {
        let mut call = mount("node-1", u64::MAX, 0);
        call.segments = segments;
        call.data_addr = "nowhere".to_owned();
        ask(
            &mut AgentPeer::connect(&rig, "node-1").await,
            Kind::Mount,
            &call,
        )
        .await;
    }
    let events = odd_events();
    let mut other = AgentPeer::mount(&rig, "node-2", 7).await;
    for who in [other.agent.id, agent.id, AgentId(u32::MAX)] {
        for incarnation in [other.agent.incarnation, Incarnation(u64::MAX)] {
            let done = Done {
                agent: who,
                incarnation,
                events: events.clone(),
            };
            let beat = Heartbeat {
                agent: who,
                incarnation,
                highest_epoch: Epoch::default(),
                load_permille: u16::MAX,
            };
            let mut peer = AgentPeer::connect(&rig, "node-2").await;
            peer.send(Kind::Done, &done, NO_DEADLINE).await;
            ask(&mut peer, Kind::Heartbeat, &beat).await;
            if who != other.agent.id {
                let agent = who;
                let leave = Unmount { agent, incarnation };
                let mut peer = AgentPeer::connect(&rig, "node-2").await;
                ask(&mut peer, Kind::Unmount, &leave).await;
            }
        }
    }
    assert!(other.beat().await, "it is still mounted");
    good.get(&["k"]).await.remove(0).expect("readable");
    rig.check().await;
}
