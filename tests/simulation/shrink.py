"""Shrinks a failing plan: leaves out choices for as long as the same violation happens (delta debugging)."""

import re
from collections.abc import Callable, Sequence

from reliq.errors import InvalidSetting
from tests.simulation.choices import Actor, Choice, Plan
from tests.simulation.stories import Violation

Simulate = Callable[[Plan], Violation | None]


def kind_of(violation: Violation) -> str:
    """Return what was violated, without the names and numbers of this simulation."""
    return re.sub(r"\S*\d\S*", "N", str(violation))[:50]


def _stays(violation: Violation) -> bool:
    return str(violation).startswith("it is not drained")


def _movers(choices: Sequence[Choice]) -> list[str]:
    return [one.name for one in choices if isinstance(one, Actor) and one.kind in ("worker", "monitor")]


def shrunk(plan: Plan, simulate: Simulate, at_most: int = 400) -> tuple[Plan, Violation]:
    """Return a plan with as few choices as were found to lead to the same kind of violation, and that violation.

    At most `at_most` simulations are tried. Where messages stay for ever, those whose work it is to move them are kept.
    """
    violation = simulate(plan)
    assert violation is not None, f"seed {plan.seed} does not fail"
    kept, latest, tries = list(plan.choices), violation, 0

    def fails(choices: Sequence[Choice]) -> bool:
        nonlocal latest, tries
        tries += 1
        if _stays(violation) and _movers(choices) != _movers(plan.choices):
            return False
        try:
            found = simulate(Plan(plan.seed, tuple(choices)))
        except InvalidSetting:  # it depends on one that was left out, as `burst` on `rate`
            return False
        if found is None or kind_of(found) != kind_of(violation):
            return False
        latest = found
        return True

    size = max(1, len(kept) // 2)
    while tries < at_most:
        removed = False
        start = 0
        while start < len(kept) and tries < at_most:
            fewer = kept[:start] + kept[start + size :]
            if fails(fewer):
                kept, removed = fewer, True
            else:
                start += size
        if size == 1 and not removed:
            break
        size = size if removed and size == 1 else max(1, size // 2)
    return Plan(plan.seed, tuple(kept)), latest
