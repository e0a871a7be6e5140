"""Measures transfers between two stock Mooncake engines for `make bench`.

Run by the Python in which the peer's wheel is installed, with the port on which the harness
listens. Each line from the harness is `write|read <bytes> <ranges a call> <seconds>`; each answer
is one line of JSON with the number of calls, the wall time and the median latency in seconds. The
first line says which processes take part.
"""

import ctypes
import json
import mmap
import os
import socket
import sys
import time

HARNESS = int(sys.argv[1])
ARENA = 256 << 20


def engine():
    """An engine with registered memory, every page of it touched."""
    from mooncake.engine import TransferEngine

    made = TransferEngine()
    code = made.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "")
    if code:
        raise SystemExit(f"the peer's engine does not start: {code}")
    memory = mmap.mmap(-1, ARENA)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    ctypes.memset(base, 0x33, ARENA)
    code = made.register_memory(base, ARENA)
    if code:
        raise SystemExit(f"the peer does not register memory: {code}")
    return made, memory, base


def target(tell, ends):
    made, _memory, base = engine()
    os.write(tell, json.dumps([f"127.0.0.1:{made.get_rpc_port()}", base]).encode())
    # Until the other one is gone.
    os.read(ends, 1)
    os._exit(0)


def calls(made, peer, base, remote, work):
    operation, size, batch = work[0], int(work[1]), int(work[2])
    # Each second place, so that nothing joins two ranges.
    places = ARENA // (2 * size) if batch > 1 else ARENA // size
    offsets = [at * (2 * size if batch > 1 else size) for at in range(places)]
    single = getattr(made, f"transfer_sync_{operation}")
    many = getattr(made, f"batch_transfer_sync_{operation}")
    at = 0
    while True:
        some = [offsets[(at + step) % places] for step in range(batch)]
        at += batch
        if batch == 1:
            code = single(peer, base + some[0], remote + some[0], size)
        else:
            local = [base + offset for offset in some]
            far = [remote + offset for offset in some]
            code = many(peer, local, far, [size] * batch)
        if code:
            raise SystemExit(f"the peer's transfer failed: {code}")
        yield


def measure(done, seconds):
    laps = []
    start = before = time.perf_counter()
    while before < start + seconds or len(laps) < 16:
        next(done)
        after = time.perf_counter()
        laps.append(after - before)
        before = after
    laps.sort()
    return {"ops": len(laps), "wall_s": before - start, "p50_s": laps[len(laps) // 2]}


def main():
    heard, tell = os.pipe()
    ends, alive = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(alive)
        target(tell, ends)
    harness = socket.create_connection(("127.0.0.1", HARNESS)).makefile("rw")

    def answer(value):
        harness.write(json.dumps(value) + "\n")
        harness.flush()

    made, _memory, base = engine()
    peer, remote = json.loads(os.read(heard, 4096))
    answer({"pids": [os.getpid(), child]})
    for line in harness:
        *work, seconds = line.split()
        answer(measure(calls(made, peer, base, remote, work), float(seconds)))
    os.close(alive)
    os.waitpid(child, 0)
    os._exit(0)


main()
