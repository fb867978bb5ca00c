"""What all batch actions have in common: which entries a batch may have, and that each one may fail alone."""

import re
from typing import Any

from reliq_sqs.calls import Parameters, Result
from reliq_sqs.errors import SqsError

MOST = 10
_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")


def checked(action: str, entries: list[Parameters]) -> list[Parameters]:
    """Return the entries of a batch; raises SqsError for a batch that is refused as a whole."""
    if not entries:
        raise SqsError("EmptyBatchRequest", f"There should be at least one {action}RequestEntry in the request.")
    if len(entries) > MOST:
        raise SqsError(
            "TooManyEntriesInBatchRequest",
            f"Maximum number of entries per request are {MOST}. You have sent {len(entries)}.",
        )
    seen = set[str]()
    for one in entries:
        if _ID.fullmatch(one["Id"]) is None:
            raise SqsError(
                "InvalidBatchEntryId",
                "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most "
                "80 letters long.",
            )
    for one in entries:
        if one["Id"] in seen:
            raise SqsError("BatchEntryIdsNotDistinct", f"Id {one['Id']} repeated.")
        seen.add(one["Id"])
    return entries


class Outcome:
    """What became of the entries of a batch."""

    def __init__(self) -> None:
        self._successful: list[dict[str, Any]] = []
        self._failed: list[dict[str, Any]] = []

    def succeed(self, identity: str, result: Result | None = None) -> None:
        self._successful.append({"Id": identity, **(result or {})})

    def fail(self, identity: str, error: SqsError) -> None:
        self._failed.append(
            {
                "Id": identity,
                "SenderFault": error.fault == "Sender",
                "Code": error.code,
                "Message": error.message,
            }
        )

    def result(self) -> Result:
        both = {"Successful": self._successful, "Failed": self._failed}
        return {name: entries for name, entries in both.items() if entries}
