"""Receipt handles: reliq's receipts, with the queue that they are of and the time of the receive."""

import base64
import binascii
from typing import NamedTuple

from reliq_sqs.errors import SqsError

_MARK = "sqs"


class Handle(NamedTuple):
    """A receipt handle that this endpoint, or another one of the same queues, has made."""

    receipt: str
    received_at: int  #: ms since the epoch


def made(queue: str, receipt: str, received_at: int) -> str:
    """Return the handle for a receipt of a queue of reliq, the same for a receive that is repeated."""
    return base64.b64encode(f"{_MARK} {queue} {received_at} {receipt}".encode()).decode()


def read(handle: str, queue: str) -> Handle:
    """Return what a handle says; raises SqsError for a text that is none, and for that of another queue."""
    try:
        mark, of, at, receipt = binascii.a2b_base64(handle, strict_mode=True).decode("ascii").split(" ")
        found = Handle(receipt, int(at))
    except ValueError:  # binascii.Error is one
        mark = of = ""
    if mark != _MARK:
        raise SqsError("ReceiptHandleIsInvalid", f'The input receipt handle "{handle}" is not a valid receipt handle.')
    if of != queue:
        raise SqsError("ReceiptHandleIsInvalid", f'The receipt handle "{handle}" is not valid for this queue.')
    return found
