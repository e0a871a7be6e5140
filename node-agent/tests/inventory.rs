//! The inventory on machines that are folders: complete, half there, and full of garbage.

use std::path::{Path, PathBuf};

use larder_node_agent::inventory::limits::{self, LimitError, Needs};
use larder_node_agent::inventory::memory::Memory;
use larder_node_agent::inventory::nics::NicKind;
use larder_node_agent::inventory::{Inventory, SystemRoot};
use larder_node_agent::segment_plan::plan;
use proptest::prelude::*;

const GIB: u64 = 1 << 30;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

fn read(name: &str) -> Inventory {
    Inventory::read(&SystemRoot::new(&folder(name)), GIB)
}

fn reason(inventory: &Inventory, name: &str) -> (bool, &'static str, String) {
    let capability = inventory
        .capability(name)
        .expect("every capability is told");
    (
        capability.available,
        capability.label,
        capability.reason.clone(),
    )
}

fn needs(dram_bytes: u64, slabs: u64, connections: u64) -> Needs {
    Needs {
        dram_bytes,
        slabs,
        connections,
    }
}

#[test]
fn a_server_is_read_whole() {
    let inventory = read("server");
    let numa = inventory.numa.clone().expect("nodes");
    assert_eq!(
        numa.iter().map(|node| node.id).collect::<Vec<_>>(),
        [0, 1, 2]
    );
    assert_eq!(numa[0].cpus, [0, 1, 2, 3, 8, 9, 10, 11]);
    assert_eq!(numa[1].memory_bytes, 128 * GIB);
    assert!(numa[2].cpus.is_empty(), "memory only");
    let memory = inventory.memory.clone().expect("memory");
    assert_eq!(memory.total_bytes, 256 * GIB);
    assert_eq!(
        memory.cgroup_limit_bytes,
        Some(64 * GIB),
        "the lowest on the way up"
    );
    let pages = inventory.hugepages.clone().expect("huge pages");
    assert_eq!(
        pages
            .iter()
            .map(|p| (p.page_bytes, p.total))
            .collect::<Vec<_>>(),
        [(2 << 20, 1024), (1 << 30, 0)]
    );
    let disks = inventory.disks.clone().expect("disks");
    let shown: Vec<_> = disks
        .iter()
        .map(|d| (d.name.as_str(), d.nvme, d.rotational))
        .collect();
    assert_eq!(shown, [("nvme0n1", true, false), ("sda", false, true)]);
    assert_eq!(disks[0].numa, Some(1));
    assert_eq!(disks[0].size_bytes, 7_501_476_528 * 512);
}

#[test]
fn interfaces_are_told_apart() {
    let nics = read("server").nics.expect("interfaces");
    let shown: Vec<_> = nics
        .iter()
        .map(|nic| (nic.name.as_str(), nic.kind, nic.up, nic.speed_mbps))
        .collect();
    assert_eq!(
        shown,
        [
            ("bond0", NicKind::Bond, true, Some(200_000)),
            ("cali12ab", NicKind::Virtual, true, Some(10_000)),
            ("eno1", NicKind::Physical, true, Some(100_000)),
            ("eno2", NicKind::Physical, true, Some(100_000)),
            ("eno3", NicKind::Physical, false, None),
            ("lo", NicKind::Loopback, true, None),
        ]
    );
    assert_eq!(nics[0].members, ["eno1", "eno2"]);
    assert_eq!(
        (nics[2].numa, nics[3].numa, nics[4].numa),
        (Some(0), Some(1), None)
    );
}

#[test]
fn what_is_found_but_not_used_says_so() {
    let inventory = read("server");
    for name in ["hugepages", "rdma", "gpu", "gds", "disk"] {
        let (available, label, reason) = reason(&inventory, name);
        assert!(!available && label == "unused", "{name}: {reason}");
        assert!(
            reason.contains("found, but this release does not use it"),
            "{reason}"
        );
    }
    assert!(reason(&inventory, "numa").0);
}

#[test]
fn b60_a_module_or_a_node_alone_is_no_capability() {
    let half = read("half");
    assert_eq!(reason(&half, "gds").1, "no_device_node");
    assert_eq!(reason(&half, "rdma").1, "no_device_node");
    assert_eq!(reason(&half, "gpu").1, "no_device_node");
    let reverse = read("reverse");
    assert_eq!(reason(&reverse, "gds").1, "no_module");
    assert_eq!(reason(&reverse, "gpu").1, "absent");
    for inventory in [half, reverse] {
        for name in ["gds", "rdma", "gpu"] {
            assert!(!reason(&inventory, name).0, "{name}");
        }
    }
}

#[test]
fn b56_locked_memory_names_limit_and_need() {
    let (available, label, sentence) = reason(&read("server"), "memory_registration");
    assert!(!available && label == "limit");
    for part in ["8388608", "1073741824", "CAP_IPC_LOCK", "ulimit -l 1048576"] {
        assert!(sentence.contains(part), "{sentence}");
    }
    assert!(
        reason(&read("half"), "memory_registration").0,
        "the limit is none"
    );
}

#[test]
fn every_lack_has_a_reason() {
    for name in ["reverse", "garbage", "not_there"] {
        let inventory = read(name);
        assert_eq!(inventory.capabilities.len(), 7, "{name}");
        for capability in &inventory.capabilities {
            assert!(!capability.available, "{name}: {capability:?}");
            assert!(!capability.reason.is_empty() && !capability.label.is_empty());
        }
        assert!(inventory.memory.is_err(), "{name}");
        let verdict = limits::check(needs(GIB, 16, 100), None, &inventory.limits);
        let verdict = verdict.expect("what is not known refuses nothing");
        assert_eq!(verdict.warnings.len(), 3, "{name}: {:?}", verdict.warnings);
    }
}

#[test]
fn too_little_memory_is_refused_in_one_sentence() {
    let inventory = read("half");
    let memory = inventory.memory.clone().expect("memory");
    assert_eq!(memory.available_bytes, GIB, "free stands in for available");
    assert_eq!(memory.cgroup_limit_bytes, Some(512 << 20), "of version 1");
    let error = limits::check(needs(GIB, 16, 10), Some(&memory), &inventory.limits);
    let error = error.expect_err("too much");
    let sentence = error.to_string();
    for part in [
        "1073741824",
        "1111770180",
        "536870912",
        "control group",
        "dram_bytes",
    ] {
        assert!(sentence.contains(part), "{sentence}");
    }
    assert!(!sentence.contains('\n'));
    assert!(limits::check(needs(256 << 20, 4, 10), Some(&memory), &inventory.limits).is_ok());
}

/// Files of control groups and what they hold.
type Files = &'static [(&'static str, &'static str)];

/// What a container shows of its memory limit, and the limit.
#[test]
fn the_limit_of_a_pod_is_found_in_every_kind_of_control_group() {
    const V1: &str = "memory/memory.limit_in_bytes";
    let cases: [(&str, Files, Option<u64>); 8] = [
        // Version 2 in a namespace of its own, as pods have it.
        ("0::/\n", &[("memory.max", "1073741824\n")], Some(GIB)),
        ("0::/\n", &[("memory.max", "max\n")], None),
        ("0::/\n", &[], None),
        // Without that namespace: the path is the node's, and what is mounted the container's.
        (
            "0::/kubepods.slice/kubepods-pod7.slice/cri-1.scope\n",
            &[("memory.max", "1073741824\n")],
            Some(GIB),
        ),
        // Seen from a sibling's namespace.
        (
            "0::/../cri-1.scope\n",
            &[("memory.max", "1073741824\n")],
            Some(GIB),
        ),
        // The whole tree is mounted: the lowest of container and pod counts.
        (
            "0::/kubepods.slice/cri-1.scope\n",
            &[
                ("kubepods.slice/memory.max", "1073741824\n"),
                ("kubepods.slice/cri-1.scope/memory.max", "2147483648\n"),
            ],
            Some(GIB),
        ),
        // Version 1, and both at once.
        (
            "5:memory:/kubepods/burstable/pod7/1\n",
            &[(V1, "1073741824\n")],
            Some(GIB),
        ),
        (
            "5:cpu,memory:/kubepods/pod7/1\n0::/\n",
            &[(V1, "9223372036854771712\n")],
            None,
        ),
    ];
    for (groups, files, limit) in cases {
        let root = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            std::fs::write(path, text).expect("written");
        };
        write(
            "proc/meminfo",
            "MemTotal: 8388608 kB\nMemAvailable: 8388608 kB\n",
        );
        write("proc/self/cgroup", groups);
        for (path, text) in files {
            write(&format!("sys/fs/cgroup/{path}"), text);
        }
        let inventory = Inventory::read(&SystemRoot::new(root.path()), GIB);
        let memory = inventory.memory.expect("memory");
        assert_eq!(memory.cgroup_limit_bytes, limit, "{groups}");
        let checked = limits::check(needs(GIB, 16, 10), Some(&memory), &inventory.limits);
        assert_eq!(checked.is_err(), limit.is_some(), "{groups}: {checked:?}");
    }
}

#[test]
fn a_limit_without_room_for_records_is_said_with_the_needed_figure() {
    let memory = |limit| Memory {
        total_bytes: 64 * GIB,
        available_bytes: 64 * GIB,
        cgroup_limit_bytes: limit,
    };
    let limits = read("server").limits;
    let warnings = |limit| {
        let memory = memory(limit);
        let verdict = limits::check(needs(16 * GIB, 256, 10), Some(&memory), &limits);
        verdict.expect("it starts").warnings
    };
    assert_eq!(warnings(None), [""; 0], "a large machine");
    let tight = warnings(Some(16 * GIB + (128 << 20)));
    let wanted = 16 * GIB + (32 << 20) + 16 * GIB / 240 + (16 * GIB / 16_384) * 560;
    assert!(
        tight[0].contains(&format!("raise the limit to {wanted} bytes")),
        "{tight:?}"
    );
    assert_eq!(warnings(Some(wanted)), [""; 0], "that is enough");
    let verdict = limits::check(
        needs(16 * GIB, 256, 10),
        Some(&memory(Some(wanted))),
        &limits,
    );
    assert_eq!(verdict.expect("it starts").records, Some(16 * GIB / 16_384));
}

#[test]
fn limits_that_are_too_low_name_the_needed_figure() {
    let limits = read("half").limits;
    let error = limits::check(needs(0, 600, 10), None, &limits).expect_err("too many mappings");
    assert_eq!(
        error,
        LimitError::Mappings {
            slabs: 600,
            needed: 2234,
            limit: 2000
        }
    );
    assert!(
        error.to_string().contains("vm.max_map_count=2234"),
        "{error}"
    );
    let error = limits::check(needs(0, 300, 10), None, &limits).expect_err("too many files");
    assert_eq!(
        error,
        LimitError::OpenFiles {
            slabs: 300,
            needed: 684,
            limit: 512
        }
    );
    assert!(error.to_string().contains("ulimit -n 684"), "{error}");
}

#[test]
fn the_limit_of_open_files_is_raised_and_connections_are_fitted_in() {
    let half = read("half");
    let memory = half.memory.clone().expect("memory");
    let check = |needs| limits::check(needs, Some(&memory), &half.limits);
    let fits = check(needs(0, 10, 50)).expect("fits");
    assert_eq!((fits.raise_open_files, fits.connections), (None, 50));
    let raised = check(needs(0, 10, 200)).expect("can be raised");
    assert_eq!(
        (raised.raise_open_files, raised.connections),
        (Some(484), 200)
    );
    assert!(raised.warnings.is_empty());
    let fewer = check(needs(0, 10, 900)).expect("with fewer connections");
    assert_eq!(
        (fewer.raise_open_files, fewer.connections),
        (Some(512), 214)
    );
    assert!(
        fewer.warnings[0].contains("need 1884 open files"),
        "{:?}",
        fewer.warnings
    );
}

#[test]
fn segments_follow_the_nodes_that_have_memory_and_processors() {
    let segments = plan(&read("server"), 5);
    let shapes: Vec<_> = segments
        .iter()
        .map(|s| (s.shape.numa, s.shape.slabs))
        .collect();
    assert_eq!(shapes, [(0, 3), (1, 2)]);
    assert_eq!(segments[1].cpus, [4, 5, 6, 7, 12, 13, 14, 15]);
    assert_eq!(plan(&read("server"), 1).len(), 1, "no empty segment");
    for name in ["half", "garbage", "not_there"] {
        let segments = plan(&read(name), 7);
        assert_eq!((segments.len(), segments[0].shape.slabs), (1, 7), "{name}");
        assert!(segments[0].cpus.is_empty(), "{name}");
    }
}

const PATHS: &[&str] = &[
    "sys/devices/system/node/node0/cpulist",
    "sys/devices/system/node/node0/meminfo",
    "proc/meminfo",
    "proc/self/limits",
    "proc/self/status",
    "proc/self/cgroup",
    "proc/sys/vm/max_map_count",
    "proc/modules",
    "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
    "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
    "sys/class/net/eth0/type",
    "sys/class/net/eth0/speed",
    "sys/class/net/eth0/bonding/slaves",
    "sys/block/sda/size",
    "sys/block/sda/device/numa_node",
    "sys/fs/cgroup/memory.max",
];

/// Text as the kernel writes it, cut, repeated and mixed up, and any bytes.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let parts = prop::sample::select(vec![
        "0",
        "-1",
        "18446744073709551615",
        "0-32768",
        ",",
        "-",
        " ",
        "\n",
        ":",
        "kB",
        "max",
        "unlimited",
        "MemTotal:",
        "MemAvailable:",
        "Max open files",
        "Max locked memory",
        "CapEff:",
        "0::/",
        "../..",
        "memory",
        "/a/b",
        "nvidia_fs",
    ]);
    let words = prop::collection::vec(parts, 0..40).prop_map(|parts| parts.concat().into_bytes());
    prop_oneof![words, prop::collection::vec(any::<u8>(), 0..200)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_content_of_any_file_stops_the_agent(
        contents in prop::collection::vec(prop::option::of(content()), PATHS.len()),
        dram_bytes in any::<u64>(),
        slabs in 1_u32..=16_384,
    ) {
        let root = tempfile::tempdir().expect("a folder");
        for (path, content) in PATHS.iter().zip(&contents) {
            let Some(content) = content else { continue };
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            std::fs::write(path, content).expect("written");
        }
        let inventory = Inventory::read(&SystemRoot::new(root.path()), dram_bytes);
        prop_assert_eq!(inventory.capabilities.len(), 7);
        let planned: u32 = plan(&inventory, slabs).iter().map(|one| one.shape.slabs).sum();
        prop_assert_eq!(planned, slabs);
        let memory = inventory.memory.as_ref().ok();
        let needs = needs(dram_bytes, u64::from(slabs), 1024);
        if let Ok(verdict) = limits::check(needs, memory, &inventory.limits) {
            prop_assert!((1..=1024).contains(&verdict.connections));
        }
    }
}
