"""Redis Cluster: the node for each request. No I/O; the cluster connections of `transport` use it.

All keys of a queue have the same hash tag, so a script or a transaction needs one node only. A list of ops may
concern many queues: it is split by node, and the answers are merged.
"""

import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from reliq.ops import Op, Request, Sleep, Transaction, Watch

SLOTS = 16384
Node = tuple[str, int]  #: host, port
ANY: Node = ("", 0)  #: for a request without keys: any node
WATCHED: Node = ("", -1)  #: for UNWATCH: the node on which this connection watches


def address_of(node: Node | None) -> str:
    """Return a node as errors and the log name it; empty if it is not known."""
    return "" if node is None else f"{node[0]}:{node[1]}"


def slot_of(key: str) -> int:
    """Return the hash slot: CRC16 of the text in the first braces, else of the whole key (Redis Cluster spec)."""
    start = key.find("{")
    end = key.find("}", start + 1)
    tag = key[start + 1 : end] if start >= 0 and end > start + 1 else key
    return binascii.crc_hqx(tag.encode(), 0) % SLOTS


class Slots:
    """The master of each slot, as reported by one node."""

    def __init__(self, reply: Sequence[Any], asked: Node) -> None:
        """Read the reply of CLUSTER SLOTS from the node `asked`; a node without a known address stands for `asked`."""
        self._masters: dict[int, Node] = {}
        for first, last, master, *_ in reply:
            node = (master[0].decode() if master[0] else asked[0], int(master[1]))
            self._masters.update(dict.fromkeys(range(first, last + 1), node))
        self.nodes = sorted(set(self._masters.values()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Slots) and self._masters == other._masters

    __hash__ = None  # type: ignore[assignment]

    def node_of(self, key: str) -> Node | None:
        """Return the master of the key's slot; None if no node serves the slot now."""
        return self._masters.get(slot_of(key))

    def key_on(self, node: Node) -> str:
        """Return a key in a slot of a master."""
        return next(key for number in count() if self.node_of(key := f"reliq:{{node{number}}}") == node)

    def share(self, node: Node) -> int:
        """Return how many slots a master has."""
        return sum(one == node for one in self._masters.values())


def cluster_slots(asked: Node) -> Op[Slots]:
    """Read the slot map from a node."""
    return Op(("CLUSTER", "SLOTS"), lambda reply: Slots(reply, asked))


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a request for one node. `places`: the positions of its answers in the answer to a list."""

    node: Node | None
    request: Request
    places: tuple[int, ...] = ()


def split(request: Request, slots: Slots) -> list[Part]:
    """Return the parts of a request, in the order in which they are to be sent."""
    match request:
        case Op(command=("CLIENT", "LIST")):
            return [Part(node, request) for node in slots.nodes]
        case Op():
            return [Part(_node(request, slots), request)]
        case Watch():
            return [Part(slots.node_of(request.keys[0]), request)]
        case Transaction(ops=()):
            return [Part(WATCHED, request)]
        case Transaction():
            return [Part(next((_node(op, slots) for op in request.ops if _key(op)), None), request)]
        case Sleep():
            raise TypeError("a Sleep goes to no node")
        case _:
            return _split_list(request, slots)


def _split_list(request: Sequence[Op[Any]], slots: Slots) -> list[Part]:
    """Split a list by node; an op without keys (TIME, WAIT) goes where the op before it goes or, if first, after it."""
    here = next((_node(op, slots) for op in request if _key(op)), ANY)
    places: dict[Node | None, list[int]] = {}
    for place, op in enumerate(request):
        here = _node(op, slots) if _key(op) else here
        places.setdefault(here, []).append(place)
    return [Part(node, [request[place] for place in some], tuple(some)) for node, some in places.items()]


def merged(request: Request, parts: Sequence[Part], answers: Sequence[Any]) -> Any:
    """Merge the answers to the parts into the answer to the request."""
    if parts and parts[0].places:
        whole: list[Any] = [None] * sum(len(part.places) for part in parts)
        for part, some in zip(parts, answers, strict=True):
            for place, answer in zip(part.places, some, strict=True):
                whole[place] = answer
        return whole
    return b"".join(answers) if isinstance(request, Op) and len(parts) > 1 else answers[0]


def _node(op: Op[Any], slots: Slots) -> Node | None:
    key = _key(op)
    return ANY if key is None else slots.node_of(key)


_KEYLESS = frozenset({"CLIENT", "CLUSTER", "CONFIG", "INFO", "PING", "SCRIPT", "TIME", "WAIT", "WAITAOF"})


def _key(op: Op[Any]) -> str | None:
    """Return the first key of a command; all others are in the same slot."""
    match op.command:
        case ("EVALSHA" | "EVAL", _, number, key, *_) if number:
            return str(key)
        case ("SCAN", _, "MATCH", pattern, *_):  # always one queue: its name is in the pattern
            return str(pattern)
        case ("MEMORY", "USAGE", key, *_):
            return str(key)
        case ("XREAD", *_, "STREAMS", key, _):
            return str(key)
        case (name, key, *_) if name not in _KEYLESS and name not in ("EVALSHA", "EVAL"):
            return str(key)
        case _:
            return None
