"""Measures calls of a stock Mooncake store for `make bench`.

Run by the Python in which the peer's wheel is installed, with the port on which the harness
listens and a free port for the peer's master (the one above it must be free too). Each line from
the harness is `<keys a call> <seconds>`; each answer is one line of JSON with the number of calls,
the wall time and the median latency in seconds. The first line says which processes take part.
"""

import json
import os
import socket
import subprocess
import sys
import time

HARNESS = int(sys.argv[1])
PORT = int(sys.argv[2])
KEYS = 64
VALUE = bytes(4096)


def start_master():
    program = os.path.join(os.path.dirname(sys.executable), "mooncake_master")
    command = [
        program,
        "--rpc_address=127.0.0.1",
        f"--rpc_port={PORT}",
        "--metrics_host=127.0.0.1",
        f"--metrics_port={PORT + 1}",
    ]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def connect(master):
    from mooncake.store import MooncakeDistributedStore

    deadline = time.monotonic() + 30
    while True:
        store = MooncakeDistributedStore()
        address = f"127.0.0.1:{PORT}"
        size = 64 << 20
        code = store.setup("127.0.0.1", "P2PHANDSHAKE", size, 16 << 20, "tcp", "", address)
        if code == 0:
            return store
        if master.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"the peer's master cannot be reached: {code}")


def measure(store, keys, seconds):
    single = keys[0] if len(keys) == 1 else None
    laps = []
    start = time.perf_counter()
    end = start + seconds
    before = start
    while before < end or len(laps) < 16:
        if single is None:
            found = store.batch_is_exist(keys)
        else:
            found = [store.is_exist(single)]
        if min(found) < 0:
            raise SystemExit(f"the peer answered {found}")
        after = time.perf_counter()
        laps.append(after - before)
        before = after
    laps.sort()
    return {"ops": len(laps), "wall_s": before - start, "p50_s": laps[len(laps) // 2]}


def main():
    # The peer's library writes to the usual outputs, so the harness is spoken to elsewhere.
    harness = socket.create_connection(("127.0.0.1", HARNESS)).makefile("rw")

    def answer(value):
        harness.write(json.dumps(value) + "\n")
        harness.flush()

    master = start_master()
    try:
        store = connect(master)
        stored = [f"get/4k/{index}" for index in range(KEYS)]
        for key in stored:
            code = store.put(key, VALUE)
            if code != 0:
                raise SystemExit(f"the peer did not store a key: {code}")
        answer({"pids": [os.getpid(), master.pid]})
        for line in harness:
            batch, seconds = line.split()
            keys = stored + [f"missing/{index}" for index in range(KEYS, int(batch))]
            answer(measure(store, keys[: int(batch)], float(seconds)))
    finally:
        master.terminate()
        master.wait()


main()
