"""The tables of reliq.contract as pages."""

from collections.abc import Iterable

from reliq.contract import kinds
from reliq.contract.counters import COUNTERS, ENDS, Counter
from reliq.contract.keys import QUEUE_KEYS, SERVER_KEYS, Key
from reliq.contract.options import OPTIONS, Option
from reliq.contract.outcomes import DEATHS, OUTCOMES, Destination, Settled
from reliq.contract.settings import SETTINGS, Setting

_OPTIONS = """# Options of a message

From the table `reliq.contract.options`. Python takes them as keywords, the command line as flags
(`--dedup-key`), HTTP as members of a message or as headers (`Reliq-Dedup-Key`), Spark as columns.

| option | value | default | meaning |
|---|---|---|---|
"""
_LEFT_OUT = """
## Where an option is left out

| call or surface | leaves out | because |
|---|---|---|
"""
_SETTINGS = """# Settings of a queue

From the table `reliq.contract.settings`. `queue.configure(...)`, `reliq config QUEUE NAME=VALUE`,
`PATCH /v1/queues/{queue}` and the policy page of the dashboard change them; `None`, an empty value or `null` restores
the default. Durations are seconds, or texts such as `"250ms"`, `"90s"`, `"5m"`, `"2h"`, `"30d"`.

| setting | value | while it is not set | meaning |
|---|---|---|---|
"""
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
[`history`](../how-to/life.md#an-index-and-a-history) notes those that are events for each
message; after a last event the message is not in the queue.

| counter | counts | metric | event |
|---|---|---|---|
"""


def options() -> str:
    """Return the page with the options of a message."""
    rows = "".join(f"| `{one.name}` | {_value(one)} | {_default(one)} | {_cell(one.text)} |\n" for one in OPTIONS)
    left_out: dict[tuple[str, str], list[str]] = {}
    for one in OPTIONS:
        for surface, reason in one.left_out.items():
            left_out.setdefault((surface, reason), []).append(f"`{one.name}`")
    reasons = "".join(
        f"| `{surface}` | {', '.join(names)} | {reason} |\n" for (surface, reason), names in sorted(left_out.items())
    )
    return "".join([_OPTIONS, rows, _LEFT_OUT, reasons])


def settings() -> str:
    """Return the page with the settings of a queue."""
    return _SETTINGS + "".join(
        f"| `{one.name}` | {_value(one)} | {one.unset} | {_cell(one.text)}{f' ({one.see})' if one.see else ''} |\n"
        for one in SETTINGS
    )


def _default(one: Option) -> str:
    return "" if one.default is None else f"`{one.kind.text(one.kind.check(one.default, one.name))}`"


def _value(one: Option | Setting) -> str:
    match one.kind:
        case kinds.Whole(smallest=smallest, largest=largest):
            return f"{smallest:,} to {largest:,}"
        case kinds.Bytes(smallest=smallest, largest=largest):
            return f"{smallest:,} to {largest:,}, or a text such as `{one.example}`"
        case kinds.Duration():
            return f"a duration, such as `{one.example}`"
        case kinds.Text() | kinds.Rate() | kinds.Weights() if one.example:
            return f"{one.kind.noun}, such as `{one.example}`"
    return ", ".join(f"`{choice}`" for choice in one.kind.choices) or one.kind.noun


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
    counted = "".join(
        f"| `{one.name}` | {one.text}{_see(one)} | {_metric(one)} | {_event(one)} |\n" for one in COUNTERS
    )
    return "".join([_OUTCOMES, decided, _DESTINATIONS, to, _DEATHS, deaths, _CODES, codes, _COUNTERS, counted])


def _see(one: Counter) -> str:
    return f" ({one.see})" if one.see else ""


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
