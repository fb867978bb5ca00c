"""When parked messages stop waiting, as `waits` has it (reliq/features/steps/lua/shared/timeouts.lua)."""

from typing import Any
from uuid import UUID


def read_timeouts(client: Any, key: str) -> dict[str, int]:
    """Return the id of each parked message with a timeout, and the ms; check that the entries are in order."""
    found: dict[str, int] = {}
    latest = 0
    for entry, score in client.zrange(key, 0, -1, desc=True, withscores=True):
        if not entry.startswith(b"\r"):
            assert score > 0
            continue
        some = _read(entry)
        assert len(found) + len(some) == len({*found, *some}), "a message is in one entry, once"
        assert latest < -score <= min(some.values()), "the entries do not overlap"
        latest = max(some.values())
        found |= some
    return found


def end_timeouts(client: Any, key: str) -> int:
    """Let the time of all parked messages be over, in its order; return how many there are."""
    entries = [entry for entry in client.zrange(key, 0, -1) if entry.startswith(b"\r")]
    known = {one: at for entry in entries for one, at in _read(entry).items()}
    ids = sorted(known, key=known.__getitem__)
    client.zrem(key, *entries or [b""])
    for place in range(0, len(ids), 32):
        some = enumerate(ids[place : place + 32], place + 1)
        items = [at.to_bytes(6, "big") + bytes([len(one)]) + one.encode() for at, one in some]
        client.zadd(key, {b"\r" + b"".join(items): -1 - place})
    return len(ids)


def _read(entry: bytes) -> dict[str, int]:
    found, place = {}, 1
    while place < len(entry):
        at, length = int.from_bytes(entry[place : place + 6], "big"), entry[place + 6]
        start, place = place + 7, place + 7 + (length or 16)
        raw = entry[start:place]
        found[raw.decode() if length else str(UUID(bytes=raw))] = at
    return found
