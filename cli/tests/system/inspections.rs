//! `larder inspect`, on folders of a log that no master has.

use std::fs;
use std::path::{Path, PathBuf};

use larder_oplog::{BootId, Entry, Log, MakeSnapshot, Options, Payload, Position, StdDisk, Vote};
use larder_store::{MountedSegment, Op, TenantPolicy};
use larder_types::{
    AgentId, AgentName, AgentUid, Attributes, Digest, Epoch, Extent, Incarnation, Key, Labels,
    Registration, SegmentGeneration, SegmentId, SlabRef, TenantId, Version,
};
use serde_json::Value;
use tempfile::TempDir;

use crate::pool::{Said, say};

fn tenant() -> TenantId {
    TenantId::new("team-a").expect("a name")
}

fn slab() -> SlabRef {
    SlabRef {
        agent: AgentId(1),
        segment: SegmentId(1),
        index: 0,
        registration: Registration((1 << 40) | 1),
    }
}

/// A pool with an agent and a slab.
fn beginning() -> Vec<Op> {
    let segment = MountedSegment {
        id: SegmentId(1),
        ordinal: 0,
        generation: SegmentGeneration(1),
        slabs: 2,
        slab_bytes: 1 << 26,
        numa: 0,
    };
    vec![
        Op::PoolBegun { generation: 1 },
        Op::TenantSet {
            tenant: tenant(),
            policy: TenantPolicy::default(),
        },
        Op::AgentMounted {
            agent: AgentId(1),
            name: AgentName::new("node-1").expect("a name"),
            uid: AgentUid(1),
            incarnation: Incarnation(1),
            segments: vec![segment],
            labels: Labels::default(),
        },
        Op::SlabGive {
            slab: slab(),
            tenant: tenant(),
        },
        Op::SlabReady { slab: slab() },
    ]
}

fn put(number: u64) -> Op {
    let epoch = Epoch {
        generation: 1,
        term: 1,
    };
    Op::PutEnd {
        tenant: tenant(),
        key: Key::new(format!("k{number}")).expect("short"),
        version: Version {
            epoch,
            counter: number + 1,
        },
        size_bytes: 4_096,
        digest: Digest(number),
        replicas: vec![vec![Extent {
            slab: slab(),
            offset_bytes: number * 4_096,
            length_bytes: 4_096,
        }]],
        wanted: 1,
        attributes: Attributes::default(),
        replaces: None,
    }
}

/// A state folder: a log of 101 entries with some segments, stopped cleanly.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().expect("a folder"));
        let mut log = folder.log();
        let append = |log: &mut Log<StdDisk>, index: u64, ops: &[Op]| {
            let at = Position { term: 1, index };
            let ops = larder_oplog::encode_ops(ops).expect("written");
            let payload = Payload::Ops { term: 1, ops }.encode();
            log.append(&[Entry { at, payload }]).expect("room");
            log.note_committed(at);
        };
        append(&mut log, 0, &beginning());
        for number in 0..100 {
            append(&mut log, number + 1, &[put(number)]);
        }
        log.save_vote(Vote {
            term: 1,
            voted_for: Some(u64::MAX),
            committed: true,
        })
        .expect("a vote");
        log.mark_clean().expect("a clean stop");
        folder
    }

    fn log(&self) -> Log<StdDisk> {
        let disk = StdDisk::open(self.oplog()).expect("a disk");
        let options = Options {
            segment_bytes: 4_096,
            ..Options::default()
        };
        Log::open(disk, options, BootId([1; 16])).expect("a log").0
    }

    fn oplog(&self) -> PathBuf {
        self.0.path().join("oplog")
    }

    fn inspect(&self, more: &[&str]) -> Said {
        inspect(self.0.path(), more)
    }

    fn segments(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.oplog()).expect("a folder");
        let mut paths: Vec<PathBuf> = files.map(|one| one.expect("a file").path()).collect();
        paths.retain(|path| path.extension().is_some_and(|end| end == "log"));
        paths.sort();
        paths
    }

    /// Makes a snapshot of the entries through one.
    fn snapshot(&self, through: u64) {
        let disk = StdDisk::open(self.oplog()).expect("a disk");
        let made = MakeSnapshot::begin(disk, through).and_then(MakeSnapshot::run);
        made.expect("made");
    }

    fn findings(&self) -> Vec<String> {
        let said = self.inspect(&["--output", "json"]);
        assert_eq!(said.code, 1, "{said:?}");
        let report = said.json();
        let findings = report["findings"].as_array().expect("a list").iter();
        findings
            .map(|one| one.as_str().expect("text").to_owned())
            .collect()
    }
}

fn inspect(folder: &Path, more: &[&str]) -> Said {
    let mut args = vec!["inspect", folder.to_str().expect("text")];
    args.extend(more);
    say(&args)
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).expect("a file");
    bytes[at] ^= 1;
    fs::write(path, bytes).expect("room");
}

#[test]
fn a_whole_folder_is_told_and_left_alone() {
    let folder = Folder::new();
    folder.snapshot(50);
    let before: Vec<Vec<u8>> = folder
        .segments()
        .iter()
        .map(|path| fs::read(path).expect("a file"))
        .collect();
    let said = folder.inspect(&["--output", "json"]);
    assert_eq!(said.code, 0, "{said:?}");
    let report = said.json();
    assert_eq!(report["findings"], Value::Array(vec![]));
    let (log, state) = (&report["log"], &report["state"]);
    assert_eq!(
        (&log["entries"], &log["clean"]),
        (&101.into(), &true.into())
    );
    assert_eq!(log["last"]["index"], 100);
    assert_eq!(log["vote"]["candidate"], u64::MAX.to_string());
    assert_eq!(report["snapshots"][0]["through"]["index"], 50);
    assert_eq!(report["snapshots"][0]["damage"], Value::Null);
    assert_eq!(state["through"]["index"], 100);
    assert_eq!(state["snapshot"]["index"], 50);
    assert_eq!(
        (&state["objects"], &state["agents"]),
        (&100.into(), &1.into())
    );
    assert_eq!(state["generation"], 1);
    // The folder of the log itself will do; people get lines.
    let said = inspect(&folder.oplog(), &[]);
    let text = String::from_utf8(said.stdout).expect("text");
    assert_eq!(said.code, 0, "{text}");
    let digest = state["digest"].as_str().expect("text");
    for words in ["101 entries", "stopped cleanly", "findings    none", digest] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let after: Vec<Vec<u8>> = folder
        .segments()
        .iter()
        .map(|path| fs::read(path).expect("a file"))
        .collect();
    assert_eq!(before, after);
    assert!(!folder.oplog().join("meta.new").exists());
}

#[test]
fn a_log_that_a_master_has_open_can_be_read() {
    let folder = Folder::new();
    let log = folder.log();
    let said = folder.inspect(&["--output", "json"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(said.json()["log"]["clean"], false);
    drop(log);
    // Its process died in the middle of a write.
    let last = folder.segments().pop().expect("a segment");
    let mut bytes = fs::read(&last).expect("a file");
    bytes.extend([0; 20]);
    fs::write(&last, bytes).expect("room");
    let said = folder.inspect(&["--output", "json"]);
    assert_eq!(said.code, 0, "{said:?}");
    let torn = said.json()["log"]["torn"]
        .as_str()
        .expect("torn")
        .to_owned();
    assert!(torn.contains("20 bytes"), "{torn}");
}

#[test]
fn damage_is_named_with_what_to_do() {
    let folder = Folder::new();
    let second = folder.segments()[1].clone();
    flip(&second, 200);
    let findings = folder.findings();
    let name = second
        .file_name()
        .and_then(|name| name.to_str())
        .expect("text");
    assert!(
        findings[0].contains(name) && findings[0].contains("joins anew"),
        "{findings:?}"
    );
    let said = folder.inspect(&[]);
    assert_eq!(said.code, 1);
    assert!(
        String::from_utf8_lossy(&said.stdout).contains("WRONG"),
        "{said:?}"
    );

    fs::remove_file(&second).expect("a file");
    let findings = folder.findings();
    assert!(
        findings[0].contains(&format!("{name} is missing")),
        "{findings:?}"
    );
    let said = folder.inspect(&["--entries", "0..101", "--output", "json"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        !said.lines().is_empty() && said.stderr.contains("missing"),
        "{said:?}"
    );

    let folder = Folder::new();
    folder.snapshot(40);
    let files = fs::read_dir(folder.oplog()).expect("a folder");
    let mut names = files.map(|one| one.expect("a file").path());
    let is_snapshot = |path: &PathBuf| path.to_string_lossy().contains("snapshot-");
    flip(&names.find(is_snapshot).expect("one"), 300);
    let findings = folder.findings();
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert!(findings[0].contains("remove it"), "{findings:?}");
    // The log has all, so the state is made from its start.
    let said = folder.inspect(&["--output", "json"]);
    assert_eq!(said.json()["state"]["objects"], 100);
}

#[test]
fn entries_and_objects_are_shown() {
    let folder = Folder::new();
    let said = folder.inspect(&["--entries", "99..200", "--output", "json"]);
    assert_eq!(said.code, 0, "{said:?}");
    let lines = said.lines();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[1]["index"], 100);
    assert_eq!(lines[1]["payload"]["ops"][0]["op"], "PutEnd");
    let said = folder.inspect(&["--key", "team-a/k7", "--output", "json"]);
    assert_eq!(said.code, 0, "{said:?}");
    let object = said.json();
    assert_eq!(object["version"], "1.1.8");
    assert_eq!(object["replicas"][0][0]["agent"], "node-1");
    let said = folder.inspect(&["--key", "team-a/k700"]);
    assert_eq!(said.code, 3, "{said:?}");
    let said = folder.inspect(&["--key", "k7", "--output", "json"]);
    assert!(said.failed(2, "usage").contains("TENANT/KEY"));
}

#[test]
fn a_folder_that_is_none_says_so() {
    let empty = tempfile::tempdir().expect("a folder");
    let said = inspect(empty.path(), &["--output", "json"]);
    let message = said.failed(2, "usage");
    assert!(message.contains("no log is there"), "{message}");
    assert_eq!(fs::read_dir(empty.path()).expect("a folder").count(), 0);
    let said = inspect(&empty.path().join("none"), &["--output", "json"]);
    assert!(said.failed(2, "file").contains("none"));
}
