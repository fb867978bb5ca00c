"""What a reader sees of a failing simulation: its choices, and its history to the violation."""

from collections.abc import Iterator

from tests.simulation.choices import Plan, line
from tests.simulation.shrink import Simulate, shrunk
from tests.simulation.stories import Violation

_SHOWN = 120  #: lines of the history, from its end


def report(plan: Plan, simulate: Simulate) -> str:
    """Shrink a failing plan, and return everything about it as text."""
    smaller, violation = shrunk(plan, simulate)
    return "\n".join(_lines(plan, smaller, violation))


def _lines(plan: Plan, smaller: Plan, violation: Violation) -> Iterator[str]:
    yield f"seed {plan.seed}: {violation}"
    yield f"repeat it: make simulate SEED={plan.seed}"
    yield f"shrunk from {len(plan.choices)} choices to {len(smaller.choices)}:"
    yield from (f"  {line(choice)}" for choice in smaller.choices)
    events = [one for one in violation.history if one[3] or one[2].split(" ")[0].isupper() or not _is_call(one[2])]
    yield f"history: the calls that moved something, what actors did, faults (last {min(_SHOWN, len(events))} lines):"
    for when, who, what, moves in events[-_SHOWN:]:
        yield f"  {when:9.4f}  {who:20}  {what}" + (f"  [{'; '.join(moves)}]" if moves else "")
    yield f"  violated: {violation}"


def _is_call(what: str) -> bool:
    """Whether a line of the history is a call that went well: only those that moved something are shown."""
    return " " not in what and ":" not in what
