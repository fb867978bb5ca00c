"""What applies to all rows of a write."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Invalid = Literal["fail", "skip", "dead"]
KeyAs = Literal["order", "header", "both"]
RepeatedHeaders = Literal["refuse", "list"]


@dataclass(frozen=True)
class Rules:
    """What applies to all rows of a job."""

    max_body: int
    invalid: Invalid = "fail"  #: what becomes of rows that cannot be sent
    dead_queue: str = ""  #: where they become dead letters
    key_as: KeyAs = "order"  #: whether `key` orders the messages, is a header, or both
    repeated_headers: RepeatedHeaders = "refuse"  #: what becomes of a header that a row has several times
    window: float = 600.0  #: seconds for which a dedup_key holds
    batch: str = ""  #: the batch that counts the messages
    trace: Mapping[str, str] = field(default_factory=dict)  #: tracing headers of all rows: the span of this job
