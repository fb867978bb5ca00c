"""Messages in the hands of a handler, or of a lease over HTTP: what features let scripts do with them."""

from contextlib import suppress

from reliq import ops
from reliq.errors import LeaseLost
from reliq.model.element import Undecodable
from reliq.model.keys import QueueKeys
from reliq.model.message import Message
from reliq.ops import Steps
from reliq.ops.held import Hold, not_held
from reliq.protocol.consumer import ConsumerSteps


def of_handler(consumer: ConsumerSteps, message: Message) -> Hold:
    """Return the hold of a message that its handler has; raises LeaseLost."""
    place = consumer.place_of(message)
    if message.lost or place is None:
        raise not_held(message)
    return Hold(consumer.keys, consumer.consumer, message, place, consumer.is_uncounted(message))


def of_lease(keys: QueueKeys, lease: str, identity: str) -> Steps[Hold]:
    """Return the hold of a message of a lease; raises LeaseLost."""
    elements = yield ops.read_back(keys, lease)
    for place, element in enumerate(reversed(elements)):
        with suppress(Undecodable):
            message = Message.decode(keys.queue, element)
            if message.id == identity:
                return Hold(keys, lease, message, place)
    raise LeaseLost("the lease has ended, or the message is settled: another consumer may be handling it")
