"""What a staged job has written, as its record says it and, once the job has ended, the list of ended jobs."""

from collections.abc import Mapping

import msgspec


class Share(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a job has for one queue: messages without dead letters, and the bytes of elements and bodies."""

    messages: int = 0
    bytes: int = 0


class Summary(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the driver knows when it commits; numbers of rows.

    `skipped`, `dead`: rows that could not be sent. `unroutable`: rows that no queue is bound to.
    """

    rows: int = 0
    skipped: int = 0
    dead: int = 0
    unroutable: int = 0
    queues: Mapping[str, Share] = {}


class Ended(msgspec.Struct, frozen=True, omit_defaults=True):
    """A committed job whose messages are all visible. Times in ms since the epoch.

    `deduplicated`: by queue, the messages that were left out because of their dedup key.
    """

    name: str
    opened: int
    committed: int
    ended: int
    deduplicated: Mapping[str, int]
    about: Summary


class Written(msgspec.Struct, frozen=True, omit_defaults=True):
    """The latest write of a Spark session."""

    job: str
    queue: str = ""  #: empty: several
    before: bool = False  #: it was committed before, so that this write has added nothing
    complete: bool = True  #: whether all messages are visible; else a monitor goes on
    deduplicated: Mapping[str, int] = {}
    about: Summary = Summary()


encode = msgspec.json.Encoder().encode
read_ended = msgspec.json.Decoder(Ended).decode
read_written = msgspec.json.Decoder(Written).decode
