"""Op of charges."""

from reliq.features.charges import signatures
from reliq.model.keys import QueueKeys, run_of
from reliq.model.message import Message
from reliq.ops.request import Op, milliseconds, scripted

KEPT = 86_400.0  #: seconds for which it is known what a run was charged, after the latest charge


def charge(keys: QueueKeys, message: Message, actual: int) -> Op[int]:
    """Replace what this run of a message has taken of the limits by `actual`."""
    call = signatures.charge(
        keys, charged=keys.charged(run_of(message.tag)), reserved=message.cost, actual=actual,
        group=message.group, kept_ms=milliseconds(KEPT),
    )  # fmt: skip
    return scripted(call)
