"""The tables of reliq.contract as pages."""

from collections.abc import Iterable

from reliq.contract.keys import QUEUE_KEYS, SERVER_KEYS, Key

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


def keys() -> str:
    """Return the page with all keys."""
    return _KEYS + _HEAD + _rows(QUEUE_KEYS) + _SERVER + _HEAD + _rows(SERVER_KEYS)


def _rows(some: Iterable[Key]) -> str:
    return "".join(f"| `{one.shown}` | {one.kind} | {_cell(one.text)} | {_goes(one)} |\n" for one in some)


def _goes(one: Key) -> str:
    return one.expires or ("with its consumer" if one.of == ("consumer",) else "")


def _cell(text: str) -> str:
    return text.replace("->", "→").replace("|", r"\|").replace("<", "&lt;")
