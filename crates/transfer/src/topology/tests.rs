//! Machines made of folders and links, as sysfs makes them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::*;

/// A folder that stands for `/` and goes with it.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().expect("below the root")).expect("made");
        fs::write(path, text).expect("written");
    }

    /// A PCI device below its bridges, with the links that sysfs has of it.
    fn pci(&self, way: &str, numa: i32, class: &str) -> String {
        let path = format!("sys/devices/{way}");
        self.write(&format!("{path}/numa_node"), &format!("{numa}\n"));
        self.write(&format!("{path}/class"), &format!("{class}\n"));
        self.write(&format!("{path}/vendor"), "0x10de\n");
        let address = way.rsplit('/').next().expect("one");
        self.link(&format!("sys/bus/pci/devices/{address}"), &path);
        path
    }

    fn link(&self, from: &str, to: &str) {
        let from = self.root().join(from);
        fs::create_dir_all(from.parent().expect("below the root")).expect("made");
        let up = "../".repeat(
            from.strip_prefix(self.root())
                .expect("below")
                .components()
                .count()
                - 1,
        );
        symlink(format!("{up}{to}"), from).expect("linked");
    }

    fn nic(&self, name: &str, way: &str, numa: i32) {
        let path = self.pci(way, numa, "0x020000");
        self.write(&format!("{path}/net/{name}/type"), "1\n");
        self.link(&format!("{path}/net/{name}/device"), &path);
        self.link(
            &format!("sys/class/net/{name}"),
            &format!("{path}/net/{name}"),
        );
    }

    fn disk(&self, name: &str, way: &str, numa: i32) {
        let path = self.pci(way, numa, "0x010802");
        let controller = format!("{path}/nvme/nvme0");
        self.write(&format!("{controller}/{name}/size"), "8\n");
        self.link(&format!("{controller}/device"), &path);
        self.link(&format!("{controller}/{name}/device"), &controller);
        self.link(
            &format!("sys/block/{name}"),
            &format!("{controller}/{name}"),
        );
    }

    fn read(&self) -> (Topology, Vec<Lack>) {
        Topology::read(&SystemRoot::new(self.root()))
    }
}

/// Two nodes, on the first a switch with a GPU and a NIC, a second NIC beside it, a GPU, a NIC and
/// a disk on the other node.
fn two_nodes() -> Machine {
    let machine = Machine::new();
    machine.write("sys/devices/system/node/node0/distance", "10 21\n");
    machine.write("sys/devices/system/node/node1/distance", "21 10\n");
    machine.pci(
        "pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:00.0/0000:1a:00.0",
        0,
        "0x030200",
    );
    machine.nic(
        "near",
        "pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:01.0/0000:1b:00.0",
        0,
    );
    machine.nic("beside", "pci0000:16/0000:16:02.0/0000:20:00.0", 0);
    machine.nic("other", "pci0000:30/0000:30:01.0/0000:31:00.0", 0);
    machine.pci("pci0000:80/0000:80:01.0/0000:81:00.0", 1, "0x030200");
    machine.nic("far", "pci0000:80/0000:80:02.0/0000:82:00.0", 1);
    machine.disk("nvme0n1", "pci0000:80/0000:80:03.0/0000:83:00.0", 1);
    machine.write("sys/class/net/lo/type", "772\n");
    machine
}

#[test]
fn distances_follow_the_tree_and_the_nodes() {
    let (topology, lacks) = two_nodes().read();
    assert_eq!(lacks, []);
    let to = |nic: &str, location: &str| {
        let nic = topology.device(DeviceKind::Nic, nic).expect(nic);
        topology.to(nic, &location.parse().expect("a location"))
    };
    assert_eq!(to("near", "cuda:0"), Distance::Switch);
    assert_eq!(to("beside", "cuda:0"), Distance::Bridge);
    assert_eq!(to("other", "cuda:0"), Distance::Node);
    assert_eq!(to("far", "cuda:0"), Distance::System);
    assert_eq!(to("far", "cuda:1"), Distance::Bridge);
    assert_eq!(to("far", "nvme:nvme0n1"), Distance::Bridge);
    assert_eq!(to("near", "cpu:0"), Distance::Node);
    assert_eq!(to("near", "cpu:1"), Distance::System);
    assert_eq!(to("near", "cuda:9"), Distance::System, "there is none");
    assert_eq!(topology.device(DeviceKind::Nic, "lo"), None, "no hardware");
    assert_eq!(topology.numa[&(0, 1)], 21);
}

#[test]
fn the_nearest_are_preferred_and_the_others_available() {
    let (topology, _) = two_nodes().read();
    let serving = |location: &str| {
        let location = location.parse().expect("a location");
        let Serving {
            preferred,
            available,
        } = topology.serving(DeviceKind::Nic, &location);
        (preferred.join(" "), available.join(" "))
    };
    let text = |near: &str, rest: &str| (near.to_owned(), rest.to_owned());
    assert_eq!(serving("cuda:0"), text("near", "beside far other"));
    assert_eq!(serving("cuda:1"), text("far", "beside near other"));
    assert_eq!(serving("cpu:0"), text("beside near other", "far"));
    assert_eq!(serving("*"), text("beside far near other", ""));
}

#[test]
fn what_nvidia_fs_says_wins() {
    let machine = two_nodes();
    machine.write(
        "proc/driver/nvidia-fs/peer_distance",
        "gpu\t\tpeer\t\tpeerrank\tp2pdist\tlink\tgen\tnuma\tnp2p\tclass\n\
         0000:1a:00.0 \t0000:1b:00.0 \t0x00ff0050\t0xffff\t0x10\t0x04\t0x00\t0\tnetwork\n\
         0000:1a:00.0 \t0000:82:00.0 \t0x00030050\t0x0003\t0x10\t0x04\t0xffffffff\t0\tnetwork\n\
         0000:1a:00.0 \t0000:83:00.0 \t0x007f0050\t0x007f\t0x10\t0x04\t0x01\t0\tnvme\n",
    );
    let (topology, lacks) = machine.read();
    assert_eq!(lacks, []);
    let gpu = Location::Cuda(0);
    let far = |kind, name| topology.to(topology.device(kind, name).expect(name), &gpu);
    assert_eq!(far(DeviceKind::Nic, "near"), Distance::NoWay);
    assert_eq!(far(DeviceKind::Nic, "far"), Distance::Switch);
    assert_eq!(far(DeviceKind::Disk, "nvme0n1"), Distance::Node);
    let serving = topology.serving(DeviceKind::Nic, &gpu);
    assert_eq!(serving.preferred, ["far"]);
    assert_eq!(
        serving.available,
        ["beside", "other"],
        "and not the one without a way"
    );
    assert_eq!(Distance::NoWay.penalty(), None);
}

#[test]
fn a_table_that_is_cut_or_none_at_all_is_read_as_far_as_it_goes() {
    let whole = "0000:1a:00.0 \t0000:1b:00.0 \t0x00000001\t0x0002\t0x10\t0x04\t0x00\t7\tnvme\n";
    let (found, odd) = parse_peer_distance(whole);
    assert_eq!((found.len(), odd), (1, 0));
    for end in 0..whole.trim_end().len() {
        let (found, odd) = parse_peer_distance(&whole[..end]);
        // Of the class a part is enough: it is not used.
        let is_row = found.len() == 1 && end > whole.find("nvme").expect("there");
        assert!(
            is_row || (found.is_empty() && odd == usize::from(end > 0)),
            "{end}"
        );
    }
    let (found, odd) = parse_peer_distance("\u{fffd}\u{fffd} garbage\n\n1 2 3 4 5 6 7 8 9\n");
    assert_eq!((found.len(), odd), (0, 2));
}

#[test]
fn an_empty_machine_has_nothing_and_says_why() {
    let machine = Machine::new();
    let (topology, lacks) = machine.read();
    assert_eq!(topology, Topology::default());
    assert_eq!(lacks.len(), 1, "{lacks:?}");
    let serving = topology.serving(DeviceKind::Nic, &Location::Cpu(0));
    assert_eq!(serving, Serving::default());
}

#[test]
fn a_machine_with_one_node_need_not_say_so() {
    let machine = Machine::new();
    machine.write("sys/devices/system/node/node0/distance", "10\n");
    machine.nic("eth0", "pci0000:00/0000:00:03.0", -1);
    let (topology, _) = machine.read();
    let nic = topology.device(DeviceKind::Nic, "eth0").expect("there");
    assert_eq!(topology.to(nic, &Location::Cpu(0)), Distance::Node);
}
