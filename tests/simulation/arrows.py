"""Which request may move a message from where to where: the arrows of reliq/lua/README.md."""

from tests.simulation.stories import DEAD, DELAYED, NOWHERE, PREPARED, PROCESSING, READY, Story

Arrow = tuple[str, str]

ARROWS: dict[str, set[Arrow]] = {
    "push": {(NOWHERE, READY)},
    "enqueue": {(NOWHERE, READY), (NOWHERE, DELAYED), (READY, NOWHERE), (DELAYED, NOWHERE)},
    "publish": {(NOWHERE, READY), (NOWHERE, DELAYED)},
    "fire": {(NOWHERE, READY)},
    "prepare": {(NOWHERE, PREPARED)},
    "decide": {(PREPARED, READY), (PREPARED, DELAYED), (PREPARED, NOWHERE)},
    "ask": {(PREPARED, DEAD)},
    "claim": {(READY, PROCESSING)},
    "claim_limited": {(READY, PROCESSING), (READY, DELAYED)},
    "settle": {
        (READY, PROCESSING), (PROCESSING, NOWHERE), (PROCESSING, READY), (PROCESSING, DELAYED), (PROCESSING, DEAD),
        (READY, NOWHERE),
    },
    "newest": {(READY, PROCESSING), (PROCESSING, NOWHERE)},
    "promote": {(DELAYED, READY), (READY, NOWHERE)},
    "cancel": {(DELAYED, NOWHERE)},
    "sweep": {(DELAYED, NOWHERE), (READY, NOWHERE)},
    "purge": {(DELAYED, NOWHERE), (READY, NOWHERE)},
    "redrive": {(DEAD, READY), (DEAD, NOWHERE), (READY, NOWHERE)},
    "discard": {(DEAD, NOWHERE)},
    "reclaim_when_full": {(PROCESSING, READY), (PROCESSING, DEAD)},
    "EXEC": {(PROCESSING, READY), (PROCESSING, DEAD)},
    "BLMOVE": {(READY, PROCESSING)},
}  # fmt: skip

#: Those of messages that newer ones of their dedup_key replace.
REPLACED = {
    "enqueue": {(READY, NOWHERE), (DELAYED, NOWHERE)}, "promote": {(READY, NOWHERE), (DELAYED, NOWHERE)},
    "settle": {(READY, NOWHERE)}, "newest": {(PROCESSING, NOWHERE)}, "redrive": {(DEAD, NOWHERE), (READY, NOWHERE)},
}  # fmt: skip


def may_move(causes: list[str], story: Story, arrow: Arrow) -> bool:
    """Whether one of these requests may move the message in this way."""
    return any(
        arrow in ARROWS.get(one, set()) - (set() if story.replace else REPLACED.get(one, set())) for one in causes
    )
