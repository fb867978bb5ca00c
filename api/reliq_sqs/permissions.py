"""AddPermission and RemovePermission: statements of the policy of a queue. It is stored and returned, not enforced."""

import json
import re
from typing import Any

from reliq_sqs.calls import Call, Result
from reliq_sqs.errors import SqsError, invalid_value, missing
from reliq_sqs.known import ATTRIBUTE, MODIFIED, SqsQueue
from reliq_sqs.model import actions
from reliq_sqs.names import part_of_aws
from reliq_sqs.policies import MOST_ACTIONS, MOST_STATEMENTS, read_json
from reliq_sqs.settings import ACCOUNT

_GRANTED = frozenset(
    (
        "*", "SendMessage", "ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility", "GetQueueAttributes",
        "GetQueueUrl", "ListDeadLetterSourceQueues", "PurgeQueue",
    )
)  # fmt: skip
_LABEL = re.compile(r"[A-Za-z0-9_-]{1,80}")
_POLICY = ATTRIBUTE + "Policy"


async def add_permission(call: Call) -> Result:
    """Add a statement that allows actions to accounts."""
    queue = await call.queue()
    label, accounts, granted = (call.given[name] for name in ("Label", "AWSAccountIds", "Actions"))
    _check(label, accounts, granted)

    def edit(now: SqsQueue) -> tuple[dict[str, str], tuple[()]]:
        policy = _policy(now)
        if any(one.get("Sid") == label for one in policy["Statement"]):
            raise invalid_value(label, "Label", "Already exists.")
        principals = [f"arn:{part_of_aws(now.place.region)}:iam::{account}:root" for account in accounts]
        actions = [f"SQS:{action}" for action in granted]
        _check_number("Statements", len(policy["Statement"]) + 1, MOST_STATEMENTS)
        policy["Statement"].append(
            {
                "Sid": label,
                "Effect": "Allow",
                "Principal": {"AWS": _one_or_all(principals)},
                "Action": _one_or_all(actions),
                "Resource": now.arn,
            }
        )
        return {_POLICY: _compact(policy), MODIFIED: str(int(call.registry.ids.server_now()))}, ()

    await call.registry.change(queue, edit)
    return {}


async def remove_permission(call: Call) -> Result:
    """Remove a statement by its label; a policy without statements is removed."""
    queue, label = await call.queue(), call.given["Label"]
    if not label:
        raise missing("Label")

    def edit(now: SqsQueue) -> tuple[dict[str, str], list[str]]:
        policy = _policy(now)
        kept = [one for one in policy["Statement"] if one.get("Sid") != label]
        if len(kept) == len(policy["Statement"]):
            raise invalid_value(label, "Label", f"can't find label{' on existing policy' if kept else ''}.")
        modified = {MODIFIED: str(int(call.registry.ids.server_now()))}
        return ({_POLICY: _compact({**policy, "Statement": kept}), **modified}, []) if kept else (modified, [_POLICY])

    await call.registry.change(queue, edit)
    return {}


def _check(label: str, accounts: list[str], granted: list[str]) -> None:
    if not label:
        raise missing("Label")
    if not granted:
        raise missing("Actions")
    if not accounts or not all(map(ACCOUNT.fullmatch, accounts)):
        raise invalid_value(f"[{', '.join(accounts)}]", "PrincipalId", "Unable to verify.")
    if _LABEL.fullmatch(label) is None:
        raise invalid_value(
            label, "Label", "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length."
        )
    _check_number("Actions", len(granted), MOST_ACTIONS)
    for action in granted:
        if action not in _GRANTED:
            reason = (
                "Only the queue owner is allowed to invoke this action."
                if action in actions()
                else "Please refer to the appropriate WSDL for a list of valid actions."
            )
            raise invalid_value(f"SQS:{action}", "ActionName", reason)


def _check_number(of: str, found: int, most: int) -> None:
    if found > most:
        raise SqsError("OverLimit", f"{found} {of} were found, maximum allowed is {most}.")


def _policy(queue: SqsQueue) -> dict[str, Any]:
    """Return the policy of a queue, with a list of statements; a new one if it has none."""
    text = queue.attributes.get("Policy")
    policy = read_json(text) if text else None
    if not isinstance(policy, dict):
        policy = {"Version": "2008-10-17", "Id": f"{queue.arn}/SQSDefaultPolicy"}
    statements = policy.get("Statement", [])
    if not isinstance(statements, list):
        statements = [statements]
    return {**policy, "Statement": [one for one in statements if isinstance(one, dict)]}


def _compact(policy: dict[str, Any]) -> str:
    """Return a policy as AWS writes it."""
    return json.dumps(policy, separators=(",", ":"))


def _one_or_all(values: list[str]) -> str | list[str]:
    return values[0] if len(values) == 1 else values
