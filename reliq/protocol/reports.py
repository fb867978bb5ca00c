"""What handlers have reported about messages that left their queue without an ack."""

import contextlib
from collections.abc import Mapping

from reliq import ops
from reliq.errors import ReliqError
from reliq.model.keys import QueueKeys
from reliq.ops import Steps


def forget_reports(keys: QueueKeys, gone: Mapping[str, int]) -> Steps[None]:
    """Delete the reports about messages that are gone.

    `gone`: ids, each with a ms at which the message was still there: a later report is of another one with this id.
    """
    if not gone:
        return
    with contextlib.suppress(ReliqError):  # what is left expires
        reports = yield [ops.progress_of(keys, identity) for identity in gone]
        ids = [one for one, report in zip(gone, reports, strict=True) if report is not None and report.at <= gone[one]]
        if ids:
            yield ops.forget_reports(keys, ids)
