"""A queue of our own on a Redis that others use: nothing of it stays behind."""

from reliq import ops
from reliq.client.app import Reliq
from reliq.model.keys import QUEUES, QueueKeys


def remove_queue(app: Reliq, name: str) -> None:
    """Delete the queue with all that is in it, whoever holds it."""
    keys = QueueKeys(name)
    consumers = app.store.call(ops.members(keys.consumers))
    theirs = [key for one in consumers for key in (keys.processing(one), keys.lease(one))]
    app.store.call([ops.command("UNLINK", *keys.everything, *theirs), ops.command("SREM", QUEUES, name)])
