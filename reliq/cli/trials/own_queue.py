"""Removal of a temporary queue from a shared Redis, without leftovers."""

from reliq import ops
from reliq.client.app import Reliq
from reliq.model.keys import QUEUES, QueueKeys


def remove_queue(app: Reliq, name: str) -> None:
    """Delete the queue with all its messages, including held ones."""
    keys = QueueKeys(name)
    consumers = app.store.call(ops.members(keys.consumers))
    theirs = [key for one in consumers for key in (keys.processing(one), keys.lease(one))]
    app.store.call([ops.command("UNLINK", *keys.everything, *theirs), ops.command("SREM", QUEUES, name)])
