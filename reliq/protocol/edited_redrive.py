"""The steps that put a dead letter back into its queue with another body and other headers."""

from collections.abc import Mapping

from reliq import ops
from reliq.errors import InvalidMessage
from reliq.model.dead_letter import DeadLetter
from reliq.model.keys import QueueKeys
from reliq.model.outgoing import check_headers
from reliq.ops import Revival, Steps


def why_not_editable(letter: DeadLetter) -> str:
    """Return why the body of a letter cannot be edited as text; empty if it can."""
    if letter.reason == "decode" or not letter.readable:
        return "Its bytes are not a message that reliq can read, so there is nothing to edit: redrive or delete it."
    if letter.reference or len(letter.preview) < letter.size:
        return (
            f"Its body has {letter.size:,} bytes: more than 1 KiB cannot be edited here. Download it, send the changed "
            "body as a new message, and delete this one."
        )
    try:
        letter.body.decode()
    except UnicodeDecodeError:
        return "Its body is not text. Download it, send the changed body as a new message, and delete this one."
    return ""


def redrive_edited(
    keys: QueueKeys, letter: DeadLetter, body: bytes, headers: Mapping[str, str], max_body: int
) -> Steps[bool]:
    """Put a letter back under its id, without failures; return False if it is not there any more.

    Raises InvalidMessage for a body or headers that cannot be sent, and for a letter that cannot be edited.
    """
    if len(body) > max_body:
        raise InvalidMessage(f"the body has {len(body):,} bytes, the limit is {max_body:,}")
    if reason := why_not_editable(letter):
        raise InvalidMessage(reason)
    again = letter.revived(keep_failures=False, body=body, headers=check_headers(headers))
    revival = Revival(letter.element, letter.id, again, letter.key if letter.in_cycle else "")
    (moved,) = yield ops.redrive(keys, [revival], keys.new_call())
    return bool(moved)
