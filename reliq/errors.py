"""All errors that reliq raises, in one hierarchy.

`RedisUnavailable` means that the call was *not* carried out; `OutcomeUnknown` that it may have been. No error quotes a
message body: redis-py's own exceptions do, so `reliq.transport.errors` translates them.
"""

from collections.abc import Mapping
from types import MappingProxyType


class ReliqError(Exception):
    """Base class of all errors that reliq raises itself."""

    #: For a send_many that failed half way: the ids of the messages that were enqueued, by position in the call.
    enqueued: Mapping[int, str] = MappingProxyType({})
    node = ""  #: host:port of the node of a Redis Cluster that did not answer, if it is known

    @property
    def sent(self) -> tuple[str, ...]:
        """The ids of `enqueued`."""
        return tuple(self.enqueued.values())


class InvalidName(ReliqError, ValueError):
    """A queue name, message id or routing key that is not valid."""


class InvalidMessage(ReliqError, ValueError):
    """A body, header or option that cannot be sent.

    `index` is the position in the call's list when the message came through `send_many`, otherwise None.
    """

    def __init__(self, text: str, index: int | None = None) -> None:
        super().__init__(text)
        self.index = index


class InvalidBody(ReliqError, ValueError):
    """A body that does not fit the annotation of its handler: its message is dead at once, with reason `invalid`.

    `path`: the place in the body, such as `$.items[0].price`.
    """

    def __init__(self, text: str, path: str) -> None:
        super().__init__(text)
        self.path = path


class InvalidSetting(ReliqError, ValueError):
    """A setting, duration or queue policy outside its range."""


class ChangeUnderWay(InvalidSetting):
    """An earlier change of the number of partitions has not ended, or others change the policy all the time.

    Nothing was changed; ask again.
    """


class MissingExtra(InvalidSetting, ImportError):
    """An optional dependency is not installed; the text names the package and the command that installs it."""


class InvalidHandler(ReliqError, ValueError):
    """A handler that cannot be registered: the second one of a queue, or a function that cannot take a message."""


class QueueFull(ReliqError):
    """The queue is at its `max_length` or `max_bytes`, or Redis is at its `maxmemory`. Nothing was enqueued, except
    the messages in `sent`: of a `send_many` of more than 1,000, or to a queue with partitions.

    `reached`: for a publish, the queues that did accept the message, each with the id there. Empty except on a Redis
    Cluster, where only queues of the same hash slot can be written together.
    """

    of_redis = False  #: whether Redis is at its `maxmemory`, and the queue at no limit of its own

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.reached: dict[str, str] = {}


class TooManyInFlight(ReliqError):
    """As many messages of the queue are in flight as its receiver allows. Nothing was received; delete some first."""


class Unroutable(ReliqError):
    """A mandatory message with a routing key that no subscription matches. Nothing was enqueued."""


class RedisUnavailable(ReliqError):
    """Redis could not be reached, or it refused the call. Nothing was changed."""

    moving = False  #: whether only the slot of a key is moving to another node of the cluster


class DurabilityUnavailable(ReliqError):
    """The server cannot provide the requested durability. Nothing was enqueued."""


class RedisUnsuitable(RedisUnavailable):
    """Redis answers but cannot hold a queue: a replica, too old, evicting keys, or refusing the credentials."""

    of_server = False  #: whether Redis can serve no call at all, and not only this one


class UnknownCommand(RedisUnsuitable):
    """The server does not know a command: it is too old, or the command was renamed."""


class ForeignKey(RedisUnsuitable):
    """A key of a queue has another type: another application uses it. Nothing was changed."""


class OutcomeUnknown(ReliqError):
    """The call was sent but no reply arrived: it may have been carried out or not.

    `ids` are the message ids of the call with the unknown outcome; those in `sent` were certainly enqueued before.
    """

    def __init__(self, text: str, ids: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.ids = ids


class DoneInPart(OutcomeUnknown):
    """An operator's call is not finished: some partitions of the queue did not answer.

    Repeating it finishes it. A monitor finishes a pause, its end, and a change of the policy (the text says so).
    `done`: by partition, what the call has done there. `missing`: by partition, why it may not be done there.
    """

    def __init__(self, text: str, done: dict[str, int], missing: dict[str, str]) -> None:
        super().__init__(text)
        self.done = done
        self.missing = missing


class JobClosed(ReliqError):
    """A staged job was aborted, exceeded its time limit or was started again: nothing of this run becomes visible."""


class PreparedClosed(ReliqError):
    """A prepared message cannot be decided like that: it was decided otherwise before, or it is unknown.

    `outcome`: committed, rolled_back, undecided (it is a dead letter), purged or unknown.
    """

    def __init__(self, text: str, outcome: str) -> None:
        super().__init__(text)
        self.outcome = outcome


class LeaseLost(ReliqError):
    """The consumer's lease expired and the monitor took its messages back: another consumer may be running them."""


class NoResult(ReliqError):
    """A message has no result: it is not handled yet, was cancelled, keeps none, or its result was deleted."""


class HandlerFailed(ReliqError):
    """The message whose result was asked for is a dead letter. `reason`: why; `error`: what its last failure says."""

    def __init__(self, text: str, reason: str, error: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.error = error


class StepsChanged(ReliqError):
    """A handler asks for other steps than its earlier run recorded: one was renamed, moved, or has another type."""


class SignalTimeout(ReliqError, TimeoutError):
    """A handler has waited for a signal that did not come in time."""


class SignalRefused(ReliqError):
    """A signal was not taken. `outcome`: ended (the message has left the queue), late (the wait is over), unknown, many
    (the message has 1,000 signals), full (early signals of 100,000 messages are kept).
    """

    def __init__(self, text: str, outcome: str) -> None:
        super().__init__(text)
        self.outcome = outcome


class TimeLimitExceeded(ReliqError):
    """A handler ran longer than its `time_limit`; recorded as the failure of its message."""
