"""Tags of a queue."""

import re
from collections.abc import Mapping

from reliq_sqs.calls import Call, Result
from reliq_sqs.errors import invalid_parameter, invalid_value, missing
from reliq_sqs.known import TAG, SqsQueue

_MOST, _LONGEST_KEY, _LONGEST_VALUE = 50, 128, 256
_CHARACTERS = re.compile(r"[\w\s.:/=+@-]*")
_ALLOWED = "unicode letters, digits, whitespace, or one of these symbols: _ . : / = + - @"


def check(given: Mapping[str, str], queue: str, has: Mapping[str, str] | None = None) -> None:
    """Raise SqsError for tags that a queue, which has others already, cannot have."""
    if len({*given, *(has or ())}) > _MOST:
        raise invalid_parameter(f"Too many tags added for queue {queue}.")
    for key, value in given.items():
        if not 1 <= len(key) <= _LONGEST_KEY:
            raise invalid_parameter("Tag keys must be between 1 and 128 characters in length.")
        if len(value) > _LONGEST_VALUE:
            raise invalid_parameter("Tag values must be between 0 and 256 characters in length.")
        for what, text in (("keys", key), ("values", value)):
            if _CHARACTERS.fullmatch(text) is None:
                raise invalid_parameter(f"Tag {what} may only contain {_ALLOWED}")
        if key.lower().startswith("aws:"):
            raise invalid_value(key, "TagKey", "Tag keys must not begin with aws:.")


async def tag_queue(call: Call) -> Result:
    """Add tags; one with the same key is replaced."""
    queue, given = await call.queue(), call.given["Tags"]
    if not given:
        raise missing("Tags")

    def edit(now: SqsQueue) -> tuple[dict[str, str], tuple[()]]:
        check(given, queue.place.name, now.tags)
        return {TAG + key: value for key, value in given.items()}, ()

    await call.registry.change(queue, edit)
    return {}


async def untag_queue(call: Call) -> Result:
    """Remove tags; those that a queue does not have are no error."""
    queue, keys = await call.queue(), call.given["TagKeys"]
    if not keys:
        raise invalid_parameter("Tag keys must be between 1 and 128 characters in length.")
    await call.registry.change(queue, lambda _: ({}, [TAG + key for key in keys]))
    return {}


async def list_queue_tags(call: Call) -> Result:
    """Return all tags of a queue."""
    queue = await call.queue()
    return {"Tags": dict(queue.tags)} if queue.tags else {}
