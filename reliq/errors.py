"""Every error a caller can meet, in one tree.

`RedisUnavailable` says the call was *not* carried out; `OutcomeUnknown` says it may have been. No error quotes a
message body: redis-py's own exceptions do, so they are translated in `store` and never leave it.
"""


class ReliqError(Exception):
    """Above every error that reliq raises itself."""

    sent: tuple[str, ...] = ()  #: of a send_many that failed half way: the ids that were enqueued before


class InvalidName(ReliqError, ValueError):
    """A queue name, message id or routing key that the grammar refuses."""


class InvalidMessage(ReliqError, ValueError):
    """A body, header or option that cannot be sent.

    `index` is the position in the call's list when the message came through `send_many`, otherwise None.
    """

    def __init__(self, text: str, index: int | None = None) -> None:
        super().__init__(text)
        self.index = index


class InvalidSetting(ReliqError, ValueError):
    """A setting, duration or queue policy outside its range."""


class InvalidHandler(ReliqError, ValueError):
    """A handler that cannot be registered: a second one of its queue, or a function that cannot take a message."""


class QueueFull(ReliqError):
    """The queue is at its `max_length` or `max_bytes`, or Redis is at its `maxmemory`. Nothing was enqueued; of a
    `send_many` of more than 1,000, nothing but what `sent` has.

    `reached`: by queue, the id in those queues of a publish that took the message all the same. Empty but on a Redis
    Cluster, where only the queues of one hash slot are reached together.
    """

    def __init__(self, text: str, reached: dict[str, str] | None = None) -> None:
        super().__init__(text)
        self.reached = reached or {}


class Unroutable(ReliqError):
    """A mandatory message whose routing key no subscription matches. Nothing was enqueued."""


class RedisUnavailable(ReliqError):
    """Redis could not be reached, or it refused the call. Nothing was changed."""


class DurabilityUnavailable(ReliqError):
    """The server cannot give the durability that was asked for. Nothing was enqueued."""


class RedisUnsuitable(RedisUnavailable):
    """Redis answers, but must not hold a queue: a replica, too old, evicting keys, or refusing our credentials."""


class ForeignKey(RedisUnsuitable):
    """A key of a queue is of another type: another application uses it. Nothing was changed."""


class OutcomeUnknown(ReliqError):
    """The call was sent and no answer came: it may have been carried out, or not.

    `ids` are the message ids of the call whose fate is unknown; those that `sent` has were surely enqueued before.
    """

    def __init__(self, text: str, ids: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.ids = ids


class JobClosed(ReliqError):
    """A staged job was aborted, ran out of its time limit, or was begun anew: nothing of this run becomes visible."""


class PreparedClosed(ReliqError):
    """A prepared message cannot be decided like that any more: it was decided otherwise, or nobody knows it.

    `outcome`: committed, rolled_back, undecided (it is a dead letter), purged or unknown.
    """

    def __init__(self, text: str, outcome: str) -> None:
        super().__init__(text)
        self.outcome = outcome


class LeaseLost(ReliqError):
    """The consumer's lease ran out and the monitor took its messages back: somebody else may be running them."""


class TimeLimitExceeded(ReliqError):
    """A handler ran longer than its `time_limit`; recorded as the failure of its message."""
