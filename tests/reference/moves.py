"""Which step of reliq may move a message from which place to which: the state chart of the scripts as a table."""

from collections.abc import Iterable, Mapping

from tests.reference.model import DEAD, DELAYED, GONE, PARKED, PREPARED, PROCESSING, READY

Move = tuple[str, str]

#: Which step may move a message from where to where; a step that is not here moves none.
MOVES: Mapping[str, set[Move]] = {
    "push": {(GONE, READY)}, "push_keyed": {(GONE, READY)},
    "enqueue": {(GONE, READY), (GONE, DELAYED), (READY, GONE), (DELAYED, GONE), (DELAYED, READY)},
    "publish": {(GONE, READY), (GONE, DELAYED)}, "fire": {(GONE, READY)}, "prepare": {(GONE, PREPARED)},
    "decide": {(PREPARED, READY), (PREPARED, DELAYED), (PREPARED, GONE)},
    "ask": {(PREPARED, DEAD)},
    "claim": {(READY, PROCESSING)}, "claim_limited": {(READY, PROCESSING), (READY, DELAYED)},
    "settle": {
        (READY, PROCESSING), (PROCESSING, GONE), (PROCESSING, READY), (PROCESSING, DELAYED), (PROCESSING, DEAD),
        (READY, GONE),
    },
    "sleep": {(PROCESSING, DELAYED)}, "park": {(PROCESSING, PARKED)}, "remove_parked": {(PARKED, GONE)},
    "signal": {(PARKED, READY)}, "unpark_due": {(PARKED, READY)},
    "newest": {(READY, PROCESSING), (PROCESSING, GONE)},
    "sweep": {(DELAYED, GONE), (READY, GONE)}, "purge": {(DELAYED, GONE), (READY, GONE)},
    "withdraw": {(READY, GONE)},
    "redrive": {(DEAD, READY), (DEAD, GONE), (READY, GONE)},
    "discard": {(DEAD, GONE)},
    "reclaim_when_full": {(PROCESSING, READY), (PROCESSING, DEAD)},
    "EXEC": {(PROCESSING, READY), (PROCESSING, DEAD)},
    "BLMOVE": {(READY, PROCESSING)}, "cancel": {(DELAYED, GONE)},
    "promote": {(DELAYED, READY), (READY, GONE), (DELAYED, GONE)},
    "receive": {(READY, PROCESSING)}, "receive_ready": {(READY, PROCESSING)},
    "return_due": {(PROCESSING, READY)}, "set_visibility": {(PROCESSING, READY)},
    "delete_flying": {(PROCESSING, GONE)},
    "delete_received": {(PROCESSING, GONE), (READY, GONE)}, "purge_received": {(PROCESSING, GONE)},
    "commit_roll": {(GONE, READY), (GONE, DELAYED), (GONE, DEAD)},
    "flow_tell": {(READY, GONE), (DELAYED, GONE)}, "flow_bury": {(READY, DEAD), (DELAYED, DEAD)},
    "flow_drop": {(READY, GONE), (DELAYED, GONE)},
    "cycle_add": {(GONE, READY)}, "cycle_remove": {(READY, GONE), (DELAYED, GONE)},
}  # fmt: skip

#: Of these moves those that only `replace` allows: a newer message of the same dedup key has come.
REPLACING: Mapping[str, set[Move]] = {
    "enqueue": {(READY, GONE), (DELAYED, GONE), (DELAYED, READY)}, "promote": {(READY, GONE)},
    "settle": {(READY, GONE)}, "newest": {(PROCESSING, GONE)}, "redrive": {(DEAD, GONE), (READY, GONE)},
}  # fmt: skip


def may_move(steps: Iterable[str], move: Move, replaces: bool) -> bool:
    """Whether one of these steps may move a message in this way. `replaces`: it was sent with `replace`."""
    nothing = set[Move]()
    return any(
        move in MOVES.get(one, nothing) and (replaces or move not in REPLACING.get(one, nothing)) for one in steps
    )
