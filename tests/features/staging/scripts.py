"""One call of each script of staged jobs, and what a queue has of them."""

from typing import Any

from reliq.features.staging import ops as own
from reliq.features.staging.ops import Staged
from reliq.ops import Op, Packed, Transaction
from reliq.ops.chunks import chunks_of
from tests.support.state import KEYS, World, elements

DAY = 86_400.0
PART, NEXT_PART = Staged(KEYS, "p"), Staged(KEYS, "n")


def stage_bodies() -> Op[Any]:
    stored = own.stage(KEYS, "open", "r", DAY, NEXT_PART, 0, [], [Packed(1, (b"$1\r\nx\r\n",))], [b"reference"])
    return stored.ops[0]


def stage() -> Transaction:
    return own.stage(KEYS, "open", "r", DAY, NEXT_PART, 0, [b"chunk"], references=[b"reference"])


CALLS = {
    "commit": lambda: own.commit(KEYS, "open", "r", b"manifest", 1, 60.0, "stream", 1),
    "commit_roll": lambda: own.commit_roll("j", PART),
    "stage": stage,
    "stage_abort": lambda: own.stage_abort(KEYS, "open", "r"),
    "stage_apart": lambda: own.stage_apart("open", NEXT_PART, 0, [b"chunk"], 60.0),
    "stage_bodies": stage_bodies,
    "stage_clear": lambda: own.stage_clear(KEYS, "done", "r", 60.0, [PART]),
    "stage_admit": lambda: own.stage_admit(KEYS, "open", "r", DAY, 1000, 1000),
    "stage_enlist": lambda: own.stage_enlist(KEYS, "open", "r", DAY, NEXT_PART),
    "stage_open": lambda: own.stage_open(KEYS, "fresh", "r", DAY),
    "unstage": lambda: own.unstage("j", PART, 1),
}


def given(world: World) -> None:
    (chunk,) = chunks_of(elements("s"))
    for job in ("open", "done"):
        world.run(own.stage_open(KEYS, job, "r", DAY))
    world.run(own.stage(KEYS, "j", "r", DAY, PART, 0, [chunk.head + chunk.frames]))
    world.run(own.stage_abort(KEYS, "done", "r"))
