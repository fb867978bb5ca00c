"""What is kept of messages for a setting, and deleted when it is reset."""

from collections.abc import Collection

from reliq import ops
from reliq.features.tracking import ops as own
from reliq.model.keys import QueueKeys
from reliq.ops import Steps
from reliq.ops.schema import Config


def forget(keys: QueueKeys, settings: Collection[str]) -> Steps[None]:
    """Delete what is kept for settings that were reset. The counts of open batches stay."""
    if Config.HISTORY in settings:
        yield ops.delete(keys.history)
    if Config.TRACK in settings:
        cursor = yield own.forget_tracked(keys)
        while cursor:
            cursor = yield own.forget_tracked(keys, cursor)
