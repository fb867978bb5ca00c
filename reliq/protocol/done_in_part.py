"""What an operator's call has done, if some homes of the queue did not answer. Each such call may be repeated."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from reliq.errors import DoneInPart, ReliqError
from reliq.model.found import CancelledMany
from reliq.model.keys import QueueKeys
from reliq.runtime.looking import is_away
from reliq.runtime.pieces import grouped


def done_everywhere(what: str, queue: str, answers: Mapping[str, Any], *, by_monitor: bool = False) -> list[Any]:
    """Return the answers of all homes to a change, given by their queues.

    Raises DoneInPart if only some have carried it out, and the first error if none has. `what`: the change.
    `by_monitor`: a monitor finishes it, so that it need not be repeated.
    """
    failed = {name: one for name, one in answers.items() if isinstance(one, ReliqError)}
    done = {name: _count(one) for name, one in answers.items() if name not in failed}
    missing: dict[str, str] = {}
    for name, error in failed.items():
        missing |= error.missing if isinstance(error, DoneInPart) else {name: str(error)}
        done |= error.done if isinstance(error, DoneInPart) else {}
    if failed and not done:
        raise next(iter(failed.values()))
    if failed:
        nodes = {error.node for error in failed.values() if error.node}
        raise _done_in_part(what, queue, done, missing, nodes, by_monitor)
    return list(answers.values())


@contextmanager
def counted(what: str, keys: QueueKeys, done: Callable[[], int]) -> Iterator[None]:
    """For a change of one home in several steps: raises DoneInPart if it ends after some of them."""
    try:
        yield
    except ReliqError as error:
        if not done() or not is_away(error):
            raise
        nodes = {error.node} if error.node else set()
        raise _done_in_part(what, keys.logical, {keys.queue: done()}, {keys.queue: str(error)}, nodes) from None


def _count(answer: Any) -> Any:
    return answer.cancelled if isinstance(answer, CancelledMany) else answer


def _done_in_part(
    what: str, queue: str, done: dict[str, Any], missing: dict[str, str], nodes: set[str], by_monitor: bool = False
) -> DoneInPart:
    counts = [one for one in done.values() if isinstance(one, int) and not isinstance(one, bool)]
    number = f" ({sum(counts)} so far)" if counts else ""
    by_reason = grouped((why, name) for name, why in missing.items())
    reasons = "; ".join(f"{', '.join(names)}: {why}" for why, names in by_reason.items())
    then = "a monitor finishes it" if by_monitor else "repeat it to finish it"
    every, whole = {**done, **missing}, [name for name in done if name not in missing]
    share = f"done in {len(whole)} of {len(every)} partitions, not" if len(every) > 1 else "not done"
    text = f"{what} of queue {queue!r} is not finished{number}, {then}; {share} in {reasons}"
    error = DoneInPart(text, done, missing)
    error.node = ", ".join(sorted(nodes))
    return error
