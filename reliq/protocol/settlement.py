"""Checks of the arguments with which a consumer settles messages."""

from collections.abc import Callable, Sequence

from reliq.contract import values
from reliq.contract.values import Duration, seconds
from reliq.errors import InvalidSetting, LeaseLost
from reliq.model.message import Message
from reliq.ops import Move
from reliq.protocol.consumer import ConsumerSteps
from reliq.runtime.advice import advise


def checked_lease(lease: Duration) -> float:
    return seconds(lease, "lease", values.MIN_LEASE_SECONDS, values.MAX_LEASE_SECONDS)


def settleable(
    consumer: ConsumerSteps, messages: Sequence[Message], move: Callable[[Message], Move] | None
) -> tuple[list[bytes], list[Move]]:
    """Return the acks or, with `move`, the moves of the messages with a valid lease; raises InvalidSetting."""
    for message in messages:
        if not isinstance(message, Message):
            raise InvalidSetting(f"cannot settle {message!r}: give a message that claim() returned")
        if message.holder is not consumer:
            raise InvalidSetting(f"cannot settle {message!r} here: another consumer holds it")
    ours = [message for message in messages if not message.lost]
    return ([message.element for message in ours], []) if move is None else ([], [move(message) for message in ours])


def settled_before(consumer: ConsumerSteps, messages: Sequence[Message]) -> list[Message]:
    """Return the messages that are not held any more although their lease was not lost."""
    held = consumer.held
    return [message for message in messages if message.element not in held and not message.lost]


def advise_about(settled: Sequence[Message]) -> None:
    """Warn about messages that have been settled a second time."""
    for message in settled:
        advise(f"message {message.id} of {message.queue!r} was settled before: settling it again changes nothing")


def lease_lost(queue: str, lost: int, of: int) -> LeaseLost:
    return LeaseLost(
        f"the lease of this consumer of {queue!r} ran out and the monitor took back what it held: "
        f"{lost} of the {of} messages of this call may be running elsewhere"
    )
