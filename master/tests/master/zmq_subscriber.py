"""A router's subscriber: decodes what a master publishes with the structs of vLLM's schema.

Usage: zmq_subscriber.py PUB REPLAY TOPIC array|map

Prints one line of JSON for each event, "replayed" behind those that were repeated, and "live"
before the first that came by itself. Ends with its standard input.
"""

import json
import sys
import threading
from typing import Any, Optional, Union

import msgspec
import zmq

AS_ARRAY = sys.argv[4] == "array"
END = (-1).to_bytes(8, "big", signed=True)


class Event(msgspec.Struct, array_like=AS_ARRAY, omit_defaults=True, gc=False, tag=True):
    pass


class BlockStored(Event):
    block_hashes: list[Union[int, bytes]]
    parent_block_hash: Optional[Union[int, bytes]]
    token_ids: list[int]
    block_size: int
    lora_id: Optional[int]
    medium: Optional[str]
    lora_name: Optional[str]
    extra_keys: Optional[list[Any]] = None
    group_idx: Optional[int] = None


class BlockRemoved(Event):
    block_hashes: list[Union[int, bytes]]
    medium: Optional[str]
    group_idx: Optional[int] = None


class AllBlocksCleared(Event):
    pass


class Batch(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    ts: float
    events: list[Union[BlockStored, BlockRemoved, AllBlocksCleared]]
    data_parallel_rank: Optional[int] = None


decoder = msgspec.msgpack.Decoder(Batch)
last = -1


def say(line):
    print(line, flush=True)


def take(seq_bytes, payload):
    """Prints the events of the next batch; false if it is not the next."""
    global last
    seq = int.from_bytes(seq_bytes, "big")
    if seq <= last:
        return True
    if seq != last + 1:
        return False
    last = seq
    batch = decoder.decode(payload)
    assert batch.ts > 1.7e9 and batch.data_parallel_rank == 0, batch
    for event in batch.events:
        name = type(event).__name__
        hashes = getattr(event, "block_hashes", [])
        medium = getattr(event, "medium", None)
        if isinstance(event, BlockStored):
            assert event.parent_block_hash is None and event.token_ids == [], event
            assert (event.block_size, event.lora_id, event.lora_name) == (0, None, None), event
        say(json.dumps({"seq": seq, "name": name, "hashes": hashes, "medium": medium}))
    return True


context = zmq.Context()
sub = context.socket(zmq.SUB)
sub.setsockopt(zmq.SUBSCRIBE, sys.argv[3].encode())
sub.connect(f"tcp://{sys.argv[1]}")
replay = context.socket(zmq.DEALER)
replay.connect(f"tcp://{sys.argv[2]}")


def catch_up():
    replay.send_multipart([b"", (last + 1).to_bytes(8, "big")])
    while True:
        delimiter, seq_bytes, payload = replay.recv_multipart()
        assert delimiter == b"", delimiter
        if seq_bytes == END:
            assert payload == b"", payload
            return
        assert take(seq_bytes, payload), "a hole in what is repeated"


def first_with_req():
    """As vLLM's own example asks: the first answer to a REQ is the first batch."""
    req = context.socket(zmq.REQ)
    req.connect(f"tcp://{sys.argv[2]}")
    req.send((0).to_bytes(8, "big"))
    seq_bytes, payload = req.recv_multipart()
    assert int.from_bytes(seq_bytes, "big") == 0 and decoder.decode(payload), seq_bytes
    req.close(linger=0)


def run():
    first_with_req()
    catch_up()
    say("replayed")
    is_live = False
    while True:
        topic, seq_bytes, payload = sub.recv_multipart()
        assert topic == sys.argv[3].encode(), topic
        if not is_live:
            is_live = True
            say("live")
        if not take(seq_bytes, payload):
            catch_up()


threading.Thread(target=run, daemon=True).start()
sys.stdin.read()
