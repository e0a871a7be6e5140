"""The stock peer, Mooncake, under the faults of chaos: one case a run, one JSON line of figures.

    python peer.py CASE FOLDER ETCD

CASE is `FAULT.DEPLOYMENT`: the fault `kill9` or `pause` of the leading master, and
`single` (one master, started again after two seconds), `ha` (two masters on one etcd) or `oplog`
(the same, with its log of operations). A client with the memory stays alive all the time; another
one puts batches of 64 keys of 4 KiB at full rate, and goes on until puts work again. Then every key
whose put was acknowledged is read. Everything listens on loopback and ends with this program.
"""

import ctypes
import hashlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.request

BATCH = 64
BYTES = 4096
SEGMENT = 1 << 30
# Full rate for so long before the fault; then puts have so long to work again, in s.
BEFORE_S = 4.0
PATIENCE_S = 60.0
# A single master is started again after this, as somebody who watches it would; a paused one wakes.
DOWN_S = 2.0
PAUSE_S = 10.0
# The master says so many words of its role by HTTP.
ASK_S = 1.0


def body(key):
    """Bytes that only this key has."""
    return (hashlib.sha256(key.encode()).digest() * (BYTES // 32 + 1))[:BYTES]


def die_with_parent():
    """So that nothing stays behind, however this program ends (PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until(what, state, seconds=PATIENCE_S):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if state():
            return
        time.sleep(0.01)
    raise SystemExit(f"not within {seconds} s: {what}")


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), 0.2).close()
        return True
    except OSError:
        return False


class Deployment:
    """Masters, and an etcd where the case has one."""

    def __init__(self, kind, folder, etcd):
        self.kind, self.folder = kind, folder
        self.masters, self.ports = {}, {}
        self.flags = []
        if kind == "single":
            names = ["a"]
        else:
            names = ["a", "b"]
            clients, peers = free_port(), free_port()
            url, peer_url = f"http://127.0.0.1:{clients}", f"http://127.0.0.1:{peers}"
            self.run([etcd, "--data-dir", f"{folder}/etcd", "--listen-client-urls", url,
                      "--advertise-client-urls", url, "--listen-peer-urls", peer_url,
                      "--initial-advertise-peer-urls", peer_url,
                      "--initial-cluster", f"default={peer_url}"], "etcd")
            until("etcd answers", lambda: answers(clients))
            self.flags = ["--enable_ha=true", "--ha_backend_type=etcd",
                          f"--ha_backend_connstring=127.0.0.1:{clients}"]
            if kind == "oplog":
                self.flags.append("--enable_oplog=true")
        for name in names:
            self.ports[name] = (free_port(), free_port())
            self.start(name)
        rpc = self.ports["a"][0]
        self.address = f"127.0.0.1:{rpc}" if kind == "single" else f"etcd://127.0.0.1:{clients}"
        until("a master leads", lambda: self.leader() is not None)

    def run(self, command, name):
        log = open(f"{self.folder}/{name}.log", "ab")
        return subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=die_with_parent)

    def start(self, name):
        rpc, metrics = self.ports[name]
        program = os.path.join(os.path.dirname(sys.executable), "mooncake_master")
        self.masters[name] = self.run(
            [program, "--logtostderr", "--rpc_address=127.0.0.1", f"--rpc_port={rpc}",
             "--metrics_host=127.0.0.1", f"--metrics_port={metrics}", *self.flags], f"master-{name}")

    def leader(self):
        """The master that leads, as its own page says; a single one as soon as it answers."""
        for name, (rpc, metrics) in self.ports.items():
            if self.kind == "single":
                return name if answers(rpc) else None
            try:
                page = urllib.request.urlopen(f"http://127.0.0.1:{metrics}/role", timeout=ASK_S)
                if "leader" in page.read().decode().lower():
                    return name
            except OSError:
                continue
        return None


def connect(address, segment):
    from mooncake.store import MooncakeDistributedStore

    store = MooncakeDistributedStore()
    if store.setup("127.0.0.1", "P2PHANDSHAKE", segment, 128 << 20, "tcp", "", address):
        raise SystemExit(f"the peer's client cannot be set up at {address}")
    return store


def part_holder(address):
    """Offers the memory, and nothing else."""
    store = connect(address, SEGMENT)
    say("ready")
    sys.stdin.read()
    # Not before: the memory goes with it.
    del store


def part_writer(address):
    """Puts until it is told to stop; a line per batch: number, begin, end, code."""
    store = connect(address, 0)
    say("ready")
    os.set_blocking(0, False)
    number = 0
    while read_if_any() is None:
        keys = [f"{number}-{at}" for at in range(BATCH)]
        begin = time.monotonic()
        code = store.put_batch(keys, [body(key) for key in keys])
        say(number, begin, time.monotonic(), code)
        number += 1


def part_reader(address):
    """Reads the batches whose numbers it is told; says how many keys are right, wrong, absent."""
    store = connect(address, 0)
    say("ready")
    right = wrong = absent = 0
    for line in sys.stdin:
        for at in range(BATCH):
            key = f"{int(line)}-{at}"
            found = store.get(key)
            if found == body(key):
                right += 1
            elif found:
                wrong += 1
            else:
                absent += 1
    say(right, wrong, absent)


def say(*words):
    print(*words, flush=True)


def read_if_any():
    """What came on standard input: None is nothing yet."""
    try:
        return os.read(0, 64)
    except BlockingIOError:
        return None


def part(name, deployment):
    """A client in a process of its own, as the peer has one per process."""
    log = open(f"{deployment.folder}/{name}.log", "ab")
    started = subprocess.Popen(
        [sys.executable, __file__, f"part:{name}", deployment.address, ""],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
        preexec_fn=die_with_parent)
    # The library may print lines of its own.
    while (line := started.stdout.readline()).strip() != "ready":
        if not line:
            raise SystemExit(f"the {name} ended; see {deployment.folder}/{name}.log")
    return started


def batches(writer):
    """What the writer says; None where it has said nothing for a moment."""
    pipe = writer.stdout.fileno()
    os.set_blocking(pipe, False)
    rest = ""
    while True:
        if not select.select([pipe], [], [], 0.05)[0]:
            yield None
            continue
        came = os.read(pipe, 1 << 16).decode()
        if not came:
            raise SystemExit("the writer ended")
        *lines, rest = (rest + came).split("\n")
        for line in lines:
            words = line.split()
            if len(words) == 4:
                number, begin, end, code = words
                yield int(number), float(begin), float(end), int(code)


def case(name, folder, etcd):
    fault, kind = name.split(".")
    deployment = Deployment(kind, folder, etcd)
    holder = part("holder", deployment)
    writer = part("writer", deployment)
    acknowledged, first_s, fault_at, victim = [], None, None, None
    start = time.monotonic()
    woken = restarted = False
    for batch in batches(writer):
        now = time.monotonic()
        if batch is not None and batch[3] == 0:
            number, begin, end, _ = batch
            acknowledged.append(number)
            if fault_at is not None and begin > fault_at and first_s is None:
                first_s = end - fault_at
        if fault_at is None and now - start > BEFORE_S:
            victim = deployment.leader()
            os.kill(deployment.masters[victim].pid,
                    signal.SIGKILL if fault == "kill9" else signal.SIGSTOP)
            fault_at = time.monotonic()
            continue
        if fault_at is None:
            continue
        if kind == "single" and fault == "kill9" and not restarted and now - fault_at > DOWN_S:
            deployment.masters[victim].wait()
            deployment.start(victim)
            restarted = True
        if fault == "pause" and not woken and now - fault_at > PAUSE_S:
            os.kill(deployment.masters[victim].pid, signal.SIGCONT)
            woken = True
        is_over = first_s is not None and (fault != "pause" or woken)
        if is_over or now - fault_at > PATIENCE_S:
            break
    writer.stdin.close()
    writer.kill()
    reader = part("reader", deployment)
    tell = "".join(f"{number}\n" for number in acknowledged)
    told, _ = reader.communicate(tell, timeout=600)
    right, wrong, absent = (int(word) for word in told.strip().splitlines()[-1].split())
    holder.kill()
    say(json.dumps({"case": name, "acknowledged": len(acknowledged) * BATCH, "lost": absent,
                    "wrong": wrong, "right": right, "first_put_s": first_s}))


if __name__ == "__main__":
    what, where, etcd_program = sys.argv[1:4]
    if what.startswith("part:"):
        globals()["part_" + what.removeprefix("part:")](where)
        os._exit(0)
    case(what, where, etcd_program)
    os._exit(0)
