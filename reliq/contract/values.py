"""Defaults, limits, and the functions that check single values: durations, numbers, ids."""

import json
import math
import re
from collections.abc import Mapping
from datetime import timedelta

from reliq.errors import InvalidName, InvalidSetting

DEFAULT_URL = "redis://localhost:6379/0"

LEASE = 15.0  #: seconds a consumer may be silent before the monitor takes its messages back
MIN_LEASE_SECONDS = 1.0
MAX_LEASE_SECONDS = 12 * 3600.0
EMPTY_FOR = 3.0  #: seconds without a message, after which a waiting consumer claims only when it is told of one
SLOW_LOOK = 10.0  #: seconds after which it claims nevertheless: a notice may be lost
HEARTBEATS_PER_LEASE = 3  #: two heartbeats may be missed
BLOCK = 1.0  #: seconds an idle consumer waits in Redis; bounds shutdown and half-open connections
RECONNECT_PAUSE = 0.1  #: seconds; well below the time after which a consumer without a connection is considered dead
SOCKET_MARGIN = 3.0  #: seconds that a reply may take beyond the blocking time of its command
SEND_TIMEOUT = 5.0  #: seconds for which a producer repeats a call after a lost reply
CALLS_AT_ONCE = 64  #: of an event loop, each on a connection to Redis; those that wait for something are not counted
DURABLE_WITHIN = 3.0  #: seconds that a send waits for disks or replicas; appendfsync everysec takes up to two
JOB_TIME_LIMIT = 24 * 3600.0  #: seconds without a write after which an open staged job is aborted
SCAN_INTERVAL = 0.5  #: seconds between two scans of the monitor
RECONNECT_GRACE = 5.0  #: seconds a consumer may be without its connection before the monitor considers it dead
LOOPBACK_GRACE = 0.5  #: the same on one machine, where no network closes a connection
GRACE = 25.0  #: seconds a worker has to finish its running messages after SIGTERM; Kubernetes kills after 30

BODY_LIMIT = 1024 * 1024  #: bytes of a message's body; the default of max_body
MAX_BODY_BYTES = 64 * 1024 * 1024  #: the largest max_body
INLINE_BODY_BYTES = 1024  #: bytes up to which a body is part of its element; scripts never touch a larger one
CLAIM_BYTES = 8 * 1024 * 1024  #: bytes of messages that one claim brings; the last one may exceed them
READ_BYTES = 2 * 1024 * 1024  #: bytes of bodies, or one larger body, that are read with one call
STREAM_BYTES = 256 * 1024  #: the same in a worker with one thread, which requests further bodies before these arrive
READ_AHEAD_BYTES = 4 * STREAM_BYTES  #: bytes of bodies that it has requested at a time, or one larger body
HOLD_BYTES = 2 * CLAIM_BYTES  #: bytes of messages that a worker holds of a queue before it claims no further ones
MAX_ELEMENT_BYTES = 256 * 1024 * 1024  #: bytes; Redis accepts arguments up to 512 MB, and a retry sends a message twice
MAX_COUNT = 1_000_000_000  #: the largest number of deliveries or failures in an element
MAX_TIME_MS = 253_402_300_799_999  #: ms since the epoch: the end of the year 9999
MAX_HEADERS_BYTES = 16 * 1024  #: bytes, names and values together
MAX_KEY_BYTES = 512  #: bytes of the key that orders a message
MAX_COST = 1_000_000_000  #: tokens of a rate that a message takes
MAX_DELAY_SECONDS = 366 * 86_400.0
MAX_ERROR_CHARACTERS = 4096  #: bytes kept of the text of one error
ERRORS_KEPT = 10  #: the first failure and the latest nine
MIN_QUOTA_BYTES = 1024 * 1024  #: the smallest byte limit of a queue
MAX_BATCH = 1000  #: messages in one call of a script

MAX_DELIVERIES = 5  #: consumers that may die with a message before it becomes a dead letter

_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
DURATION = r"^[0-9]{1,15}(\.[0-9]{1,15})?\s{0,8}(ms|s|m|h|d)?$"  #: a duration as a text, for schemas
_DURATION = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d|)")

_RATE = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,6})?)\s*/\s*(s|m|h|d)(?:(?<=m)in)?", re.ASCII)

_SIZE_UNITS = {"": 1, "kib": 1024, "mib": 1024**2, "gib": 1024**3}
SIZE = r"^[0-9]{1,15}\s{0,8}([Kk][Ii][Bb]|[Mm][Ii][Bb]|[Gg][Ii][Bb])?$"  #: a size as a text, for schemas
_SIZE = re.compile(r"([0-9]{1,15})\s*(kib|mib|gib|)", re.ASCII | re.IGNORECASE)

MAX_ID = 128  #: characters
_ID = re.compile(rf"[\x21-\x7e]{{1,{MAX_ID}}}")
is_id = _ID.fullmatch

PRIORITIES = ("high", "normal", "low")

Duration = float | int | str | timedelta
Size = int | str


def seconds(value: Duration, what: str, shortest: float = 0.0, longest: float = MAX_DELAY_SECONDS) -> float:
    """Read a duration: a number of seconds, a text such as "90s", "1.5h", "250ms", or a timedelta.

    Raises InvalidSetting naming `what` for anything else, NaN, and values outside [shortest, longest].
    """
    if isinstance(value, timedelta):
        number = value.total_seconds()
    elif isinstance(value, str):
        match = _DURATION.fullmatch(value.strip())
        if match is None:
            raise InvalidSetting(f'{what} is {value!r}: write seconds, or a number and a unit such as "90s" or "1h"')
        number = float(match[1]) * _UNITS[match[2]]
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        number = float(value) if abs(value) < 1e300 else math.inf  # a whole number may be too large for a float
    else:
        raise InvalidSetting(f"{what} is {value!r}: give seconds, a text such as '90s', or a timedelta")
    if not math.isfinite(number) or not shortest <= number <= longest:
        raise InvalidSetting(f"{what} is {value!r}: it must be between {_length(shortest)} and {_length(longest)}")
    return number


def _length(seconds: float) -> str:
    """Return a length of time in its largest unit that gives a whole number, such as 366 days."""
    for unit, name in ((86_400.0, "day"), (3600.0, "hour"), (60.0, "minute"), (1.0, "second")):
        if seconds >= unit and seconds % unit == 0:
            return f"{seconds / unit:g} {name}{'s' * (seconds != unit)}"
    return f"{seconds * 1000:g} ms" if 0 < seconds < 0.1 else f"{seconds:g} seconds"


def size(value: object, what: str, smallest: int, largest: int) -> int:
    """Read a number of bytes: a whole number, or a text such as "1048576", "512KiB", "8 MiB".

    Raises InvalidSetting naming `what` for anything else, and for values outside [smallest, largest].
    """
    number = value
    if isinstance(value, str):
        match = _SIZE.fullmatch(value.strip())
        if match is None:
            raise InvalidSetting(
                f'{what} is {value!r}: write bytes, or a whole number and a unit (KiB, MiB, GiB) such as "8MiB"'
            )
        number = int(match[1]) * _SIZE_UNITS[match[2].lower()]
    if isinstance(number, bool) or not isinstance(number, int) or not smallest <= number <= largest:
        raise InvalidSetting(f"{what} is {value!r}: it must be from {bytes_text(smallest)} to {bytes_text(largest)}")
    return number


def bytes_text(number: int) -> str:
    """Return a number of bytes in the largest unit that divides it, as `size` reads it."""
    for unit, factor in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if number >= factor and number % factor == 0:
            return f"{number // factor} {unit}"
    return f"{number:,} byte" + "s" * (number != 1)


def rate(value: object, what: str) -> str:
    """Read a rate such as "100/s", "5/m" (or "5/min"), "0.5/s" or "1000/h"; return it in that form.

    Raises InvalidSetting naming `what` for anything else, and outside of [one a day, a million a second].
    """
    match = _RATE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise InvalidSetting(
            f'{what} is {value!r}: write a number, a slash, and one of s, m or min, h, d, such as "100/s"'
        )
    number, unit = float(match[1]), match[2]
    if not 1 / 86_400 <= number / _UNITS[unit] <= 1_000_000:
        raise InvalidSetting(f"{what} is {value!r}: it must be from 1/d to 1000000/s")
    return f"{match[1]}/{unit}"


def yes_or_no(value: object, what: str) -> bool:
    """Read a bool, or one of the texts true and false; raises InvalidSetting naming `what`."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise InvalidSetting(f"{what} is {value!r}: it must be true or false")


def weights(value: object, what: str) -> dict[str, int]:
    """Read weights by key: a mapping, or a text such as "gold:4,free:1"; each is a whole number from 1 to 100.

    Raises InvalidSetting naming `what`.
    """
    by_key = _weights_of(value) if isinstance(value, str) else value
    if not isinstance(by_key, Mapping) or len(by_key) > 1000:
        raise InvalidSetting(
            f'{what} is {value!r}: give at most 1000 weights by key, such as {{"gold": 4}} or "gold:4"'
        )
    for name, weight in by_key.items():
        if not isinstance(name, str) or not 0 < len(name.encode("utf-8", "replace")) <= MAX_KEY_BYTES:
            raise InvalidSetting(f"{what} has the key {name!r}: a text of 1 to {MAX_KEY_BYTES} bytes of UTF-8")
        whole(weight, f"{what}[{name!r}]", 1, 100)
    return dict(by_key)


def _weights_of(text: str) -> object:
    if text.strip().startswith("{") and text.strip().endswith("}"):  # a key may begin so, too
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return None
    pairs = [one.rpartition(":") for one in text.split(",")]
    if not all(colon for _, colon, _ in pairs):
        return None
    return {name.strip(): int(weight) if weight.strip().isdigit() else weight for name, _, weight in pairs}


DURABILITY_PATTERN = r"^(memory|fsync|replicas=0*([1-9][0-9]?|100))$"  #: for schemas, too
_DURABILITY = re.compile(DURABILITY_PATTERN, re.ASCII)


def durability(value: object, what: str = "durability") -> str:
    """Read "memory", "fsync" or "replicas=N", N from 1 to 100; raises InvalidSetting naming `what`."""
    match = _DURABILITY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise InvalidSetting(f'{what} is {value!r}: it is "memory", "fsync" or "replicas=1" (2, 3 ...)')
    return f"replicas={match[2]}" if match[2] else match[1]


def retries(value: object) -> int | None:
    """Read the largest number of repetitions of a call; None: as many as there is time for."""
    return None if value is None else whole(value, "repeats", 0, 1_000_000)


def whole(value: object, what: str, smallest: int, largest: int) -> int:
    """Read a whole number in [smallest, largest]; raises InvalidSetting naming `what`."""
    if isinstance(value, bool) or not isinstance(value, int) or not smallest <= value <= largest:
        raise InvalidSetting(f"{what} is {value!r}: it must be a whole number from {smallest} to {largest}")
    return value


def port(value: object, what: str) -> int:
    """Read the number of a port; 0 stands for a free one. Raises InvalidSetting naming `what`."""
    return whole(value, what, 0, 65_535)


def number(value: object, what: str, smallest: float, largest: float) -> float:
    """Read a number in [smallest, largest]; raises InvalidSetting naming `what`, also for NaN."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not smallest <= value <= largest:
        raise InvalidSetting(f"{what} is {value!r}: it must be a number from {smallest:,} to {largest:,}")
    return value


def unicode_text(value: object, what: str) -> str:
    """Return a text that is valid Unicode; raises InvalidSetting naming `what`."""
    if not isinstance(value, str) or any("\ud800" <= one <= "\udfff" for one in value):
        raise InvalidSetting(f"{what} is {cut(repr(value), 100)}: give a text of valid Unicode")
    return value


def cut(text: str, largest: int = MAX_ERROR_CHARACTERS) -> str:
    """Return the text in at most `largest` bytes of UTF-8, with its middle left out and lone surrogates replaced."""
    data = text.encode("utf-8", "replace")
    if len(data) <= largest:
        return data.decode()
    half = (largest - 5) // 2
    return data[:half].decode("utf-8", "ignore") + " ... " + data[-half:].decode("utf-8", "ignore")


def check_id(value: object) -> str:
    """Return a valid id of a message; raises InvalidName."""
    if isinstance(getattr(value, "id", None), str):  # a Message, a FlowMessage, a flow
        raise InvalidName(f"message id {cut(repr(value), 80)}: give the .id of this {type(value).__name__}")
    if not isinstance(value, str) or _ID.fullmatch(value) is None:
        raise InvalidName(f"message id {cut(repr(value), 80)}: use 1 to 128 printable ASCII characters without spaces")
    return value
