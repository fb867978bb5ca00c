"""The tables of reliq.contract as pages."""

from collections.abc import Iterable

from reliq.contract.counters import COUNTERS, ENDS, Counter
from reliq.contract.keys import QUEUE_KEYS, SERVER_KEYS, Key
from reliq.contract.outcomes import DEATHS, OUTCOMES, Destination, Settled

_KEYS = """# Keys in Redis

What reliq keeps in Redis, from the table `reliq.contract.keys`. Each key belongs to one queue or to the server; the
commands below are those of `redis-cli`. Read keys as you like, and change them only where a page says so.

## Of a queue

All keys of a queue carry its hash tag, so a queue lies in one slot of a cluster. The messages of the queue `orders` are
in `reliq:{orders}:messages`. [The element on the wire](wire-format.md) is what the lists and sorted sets hold.

A key goes with its queue (`reliq queue delete`), and with its last entry. Some go earlier:

"""
_SERVER = """
## Of the server

"""
_HEAD = "| key | type | holds | goes |\n|---|---|---|---|\n"

_OUTCOMES = """# Outcomes and counters

From the tables `reliq.contract.outcomes` and `reliq.contract.counters`. [States](../concepts/states.md) has the way of
a message as a picture.

## Outcomes of a message that a consumer holds

An outcome counts in the counter of its name. Over HTTP, `settle` has a verb for those that a client decides.

| outcome | when | goes to | over HTTP |
|---|---|---|---|
"""
_DESTINATIONS = """
| goes to | means |
|---|---|
"""
_DEATHS = """
## Reasons of dead letters

| reason | when | decided by |
|---|---|---|
"""
_CODES = """
## Codes of a settle

A settle answers one for each message.

| over HTTP | in a script | means |
|---|---|---|
"""
_COUNTERS = """
## Counters of a queue

In `reliq:{QUEUE}:counters`, `queue.stats().counters`, and as [metrics](../operations/metrics.md). A queue with
[`history`](../how-to/life.md#an-index-and-a-history-for-queues-that-want-them) notes those that are events for each
message; after a last event the message is not in the queue.

| counter | counts | metric | event |
|---|---|---|---|
"""


def outcomes() -> str:
    """Return the page with what becomes of messages, and what counts it."""
    decided = "".join(
        f"| `{one.name}` | {one.text} | {', '.join(f'`{to}`' for to in one.destinations)} | "
        f"{f'`{one.verb}`' if one.verb else f'none: {one.no_verb}'} |\n"
        for one in OUTCOMES
    )
    to = "".join(f"| `{one}` | {one.text} |\n" for one in Destination)
    deaths = "".join(f"| `{one.name}` | {one.text} | {one.by} |\n" for one in DEATHS)
    codes = "".join(f"| `{one.code}` | `{one}` | {one.text} |\n" for one in Settled)
    counted = "".join(f"| `{one.name}` | {one.text} | {_metric(one)} | {_event(one)} |\n" for one in COUNTERS)
    return "".join([_OUTCOMES, decided, _DESTINATIONS, to, _DEATHS, deaths, _CODES, codes, _COUNTERS, counted])


def _metric(one: Counter) -> str:
    return f"`{one.metric}_total`" if one.metric else f"none: {one.left_out}"


def _event(one: Counter) -> str:
    return ("the last one" if one.event == ENDS else "yes") if one.event else ""


def keys() -> str:
    """Return the page with all keys."""
    return _KEYS + _HEAD + _rows(QUEUE_KEYS) + _SERVER + _HEAD + _rows(SERVER_KEYS)


def _rows(some: Iterable[Key]) -> str:
    return "".join(f"| `{one.shown}` | {one.kind} | {_cell(one.text)} | {_goes(one)} |\n" for one in some)


def _goes(one: Key) -> str:
    return one.expires or ("with its consumer" if one.of == ("consumer",) else "")


def _cell(text: str) -> str:
    return text.replace("->", "→").replace("|", r"\|").replace("<", "&lt;")
