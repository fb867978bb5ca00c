"""The results of a scenario as text."""

from collections.abc import Sequence

from tests.campaign.run import Outcome
from tests.campaign.scenarios import Scenario


def table(scenarios: Sequence[Scenario]) -> str:
    """Return one line for each scenario."""
    width = max(len(one.name) for one in scenarios)
    return "\n".join(
        f"{one.name:{width}}  {one.about} ({one.volume:,} {one.unit}, in full {one.full:,})" for one in scenarios
    )


def text(scenario: Scenario, outcome: Outcome) -> str:
    """Return what the checker found, for people."""
    verdict = outcome.verdict
    rows = [
        ("seed", str(outcome.seed)),
        (scenario.unit, f"{outcome.done:,} of {outcome.volume:,}"),
        ("messages", f"{verdict['messages']:,}, handled {verdict['handled']:,}"),
        ("duplicate runs", _counts(verdict["extra runs"])),
        ("lost in a window", f"{verdict['lost in a window']:,}"),
        ("refused sends", _counts(verdict["refused sends"])),
        ("late settles refused", f"{verdict['late settles refused']:,}"),
        ("recovery", ", ".join(f"{name} {value:g}" for name, value in verdict["recovery"].items()) or "-"),
        ("drained", "yes" if outcome.drained else "NO"),
    ]
    lines = [f"{scenario.name}: {scenario.about}, {outcome.seconds:.1f} s", ""]
    lines += [f"  {name:24}{value}" for name, value in rows]
    for rule, count in verdict["broken"].items():
        lines.append(f"  BROKEN  {rule}: {count}, as {'; '.join(verdict['examples'][rule][:3])}")
    if outcome.good:
        lines += ["", "Every promise was kept."]
    return "\n".join(lines)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} by {name}" for name, count in counts.items()) or "0"
