"""A stock engine that does what it is told: one JSON object a line in, one out."""

import ctypes
import json
import mmap
import os
import sys

# The engine's library writes to the standard output as it likes; answers go to a copy of it.
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

from mooncake.engine import TransferEngine, TransferNotify, TransferOpcode  # noqa: E402

BYTES = int(sys.argv[1])


def pattern(seed, count):
    """The same bytes as `pattern` of the test beside this script."""
    table = bytes(((at * 3) & 0xFF) ^ seed for at in range(251))
    return (table * (count // len(table) + 1))[:count]


memory = mmap.mmap(-1, BYTES)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
engine = TransferEngine()


def start(_):
    # The port is not looked at: the engine takes one that is free.
    code = engine.initialize("127.0.0.1:12345", "P2PHANDSHAKE", "tcp", "")
    if code == 0:
        code = engine.register_memory(address, BYTES)
    return {"code": code, "port": engine.get_rpc_port(), "address": address}


def fill(ask):
    at, count = ask["offset"], ask["bytes"]
    memory[at : at + count] = pattern(ask["seed"], count)
    return {}


def check(ask):
    at, count = ask["offset"], ask["bytes"]
    return {"same": memory[at : at + count] == pattern(ask["seed"], count)}


def move(ask):
    opcode = TransferOpcode.Write if ask["what"] == "write" else TransferOpcode.Read
    notify = TransferNotify(*ask["notify"]) if "notify" in ask else None
    local = address + ask["offset"]
    code = engine.transfer_sync(
        ask["peer"], local, ask["remote"], ask["bytes"], opcode, notify
    )
    return {"code": code}


def notifies(_):
    return {"notifies": [[one.name, one.msg] for one in engine.get_notifies()]}


def probe(ask):
    return {"code": engine.send_probe(ask["peer"])}


def unregister(_):
    return {"code": engine.unregister_memory(address)}


COMMANDS = {
    "start": start,
    "fill": fill,
    "check": check,
    "write": move,
    "read": move,
    "notifies": notifies,
    "probe": probe,
    "unregister": unregister,
}

for line in sys.stdin:
    ask = json.loads(line)
    print(json.dumps(COMMANDS[ask["what"]](ask)), file=answers, flush=True)

# The engine's threads may not end; nothing is left to be saved.
os._exit(0)
