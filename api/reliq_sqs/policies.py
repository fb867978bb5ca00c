"""The policy of a queue: what it must be, how much it may say, and how it is stored. Other JSON texts, too."""

import json
import re
from typing import Any

from reliq_sqs.errors import SqsError

_VERSIONS = ("2008-10-17", "2012-10-17")  #: the first one is that of a policy that does not say it
_MEMBERS = frozenset(("Version", "Id", "Statement"))
_OF_STATEMENTS = frozenset(
    (
        "Sid", "Effect", "Principal", "NotPrincipal", "Action", "NotAction", "Resource", "NotResource", "Condition",
    )
)  # fmt: skip
_EFFECTS = ("Allow", "Deny")
MOST_STATEMENTS, MOST_ACTIONS, _MOST_BYTES = 20, 7, 8192  #: actions are those of one statement
_TEXT_OR_BLANKS = re.compile(r'("(?:[^"\\]|\\.)*")|\s+')


def read_json(text: str) -> Any:
    """Return what JSON says; None for any other text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def compact(text: str) -> str:
    """Return JSON without the blanks that are outside of its texts, as AWS stores it."""
    return _TEXT_OR_BLANKS.sub(r"\1", text)


def stored(text: str) -> str | None:
    """Return a policy as AWS stores it: with a version; None if the text is no policy.

    Raises SqsError for a policy that says too much.
    """
    policy = read_json(text)
    if not isinstance(policy, dict) or not policy.keys() <= _MEMBERS:
        return None
    found = policy.get("Statement")
    statements: list[Any] = found if isinstance(found, list) else [found]
    if policy.get("Version", _VERSIONS[0]) not in _VERSIONS or not statements:
        return None
    if not all(map(_is_statement, statements)):
        return None
    text = compact(text)
    _check_size(text, statements)
    return text if "Version" in policy else f'{{"Version":"{_VERSIONS[0]}",{text[1:]}'


def _is_statement(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() <= _OF_STATEMENTS and value.get("Effect") in _EFFECTS


def _check_size(text: str, statements: list[Any]) -> None:
    if len(statements) > MOST_STATEMENTS:
        raise _too_much(f"{len(statements)} statements were found in the submitted policy", MOST_STATEMENTS)
    for one in statements:
        actions = one.get("Action")
        if isinstance(actions, list) and len(actions) > MOST_ACTIONS:
            raise _too_much(f"{len(actions)} actions were found in a statement from the submitted policy", MOST_ACTIONS)
    if len(text.encode()) > _MOST_BYTES:
        raise SqsError("OverLimit", "Submitted policy is over max allowed size.")


def _too_much(found: str, most: int) -> SqsError:
    return SqsError("OverLimit", f"{found}, max allowed is {most}")
