"""What the messages of a campaign ask their handler for, and the mix of them that producers send."""

import random
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

QUEUE = "campaign.fifo"  #: an SQS endpoint takes it for a FIFO queue by its name
FAIL_DELAY = 0.2  #: seconds until a message that has failed once is due again

#: How many of a hundred messages are of each kind.
MIX: Mapping[str, int] = {
    "plain": 50, "keyed": 20, "delayed": 8, "cancelled": 4, "deduplicated": 5, "failing": 5, "rejected": 2, "large": 6,
}  # fmt: skip

#: The same of what a FIFO queue of SQS knows, too.
SQS_MIX: Mapping[str, int] = {"plain": 45, "keyed": 35, "deduplicated": 7, "failing": 6, "large": 7}


class Task(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of a message."""

    name: str  #: unique in the campaign, but for the second message of a deduplication key
    do: str = "work"  #: work | fail (at the first run) | reject | die (kill the process that runs it)
    pad: str = ""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message as a producer sends it."""

    task: Task
    kind: str
    key: str = ""
    delay: float = 0.0
    dedup_key: str = ""

    @property
    def body(self) -> bytes:
        return msgspec.json.encode(self.task)

    @property
    def noted(self) -> dict[str, object]:
        """What the history says about it."""
        fields = {"name": self.task.name, "do": self.task.do, "key": self.key, "delay": self.delay}
        return {name: value for name, value in fields.items() if value} | (
            {"dedup": self.dedup_key} if self.dedup_key else {}
        )


class Source:
    """The messages of one producer, in the order in which it sends them; the same for the same seed."""

    def __init__(self, producer: str, seed: int, mix: Mapping[str, int], keys: int = 5) -> None:
        self._producer = producer
        self._random = random.Random(f"{seed} {producer}")
        self._kinds, self._weights = list(mix), list(mix.values())
        self._keys = [f"{producer}-key-{number}" for number in range(keys)]
        self._number = 0

    def next(self) -> Outgoing:
        self._number += 1
        name = f"{self._producer}:{self._number}"
        (kind,) = self._random.choices(self._kinds, self._weights)
        match kind:
            case "keyed":
                return Outgoing(Task(name), kind, key=self._random.choice(self._keys))
            case "delayed":
                return Outgoing(Task(name), kind, delay=round(self._random.uniform(0.05, 1.0), 3))
            case "cancelled":
                return Outgoing(Task(name), kind, delay=round(self._random.uniform(0.2, 1.0), 3))
            case "deduplicated":
                return Outgoing(Task(name), kind, dedup_key=name)
            case "failing":
                return Outgoing(Task(name, "fail"), kind)
            case "rejected":
                return Outgoing(Task(name, "reject"), kind)
            case "deadly":
                return Outgoing(Task(name, "die"), kind)
            case "large":
                return Outgoing(Task(name, pad="x" * 2000), kind)
        return Outgoing(Task(name), kind)
