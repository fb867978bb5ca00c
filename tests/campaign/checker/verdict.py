"""The verdict on a run: which promises are broken, and what was counted."""

import statistics
from collections import Counter
from itertools import islice, pairwise
from typing import Any

from tests.campaign.checker.reading import Evidence
from tests.campaign.checker.rules import RULES, accepted, duplicates, late_starts, missing

_EXAMPLES = 5
_KILLS = ("sigkill", "died")


def judge(evidence: Evidence) -> dict[str, Any]:
    """Return the verdict on a run: what is broken, and what was counted."""
    broken: dict[str, int] = {}
    examples: dict[str, list[str]] = {}
    for name, rule in RULES.items():
        found = rule(evidence)
        if some := list(islice(found, _EXAMPLES)):
            broken[name] = len(some) + sum(1 for _ in found)
            examples[name] = some
    recovery = recoveries(evidence)
    limit = evidence.promised.get("recovery_limit")
    if limit and recovery and _quantile(recovery, 0.99) > limit:
        broken["recovered late"] = sum(one > limit for one in recovery)
        examples["recovered late"] = [f"{max(recovery):.2f} s, promised are {limit:g} s"]
    extra = Counter("unexplained" if fault is None else fault.kind for _, fault in duplicates(evidence))
    return {
        "valid": not broken,
        "broken": broken,
        "examples": examples,
        "messages": len(accepted(evidence)),
        "handled": sum(any(run.then == "ok" for run in one.runs) for one in evidence.stories.values()),
        "lost in a window": sum(1 for _ in missing(evidence)) - broken.get("lost", 0),
        "extra runs": dict(extra),
        "faults": dict(Counter(fault.kind for fault in evidence.faults)),
        "refused sends": dict(evidence.errors),
        "texts": evidence.texts,
        "late settles refused": sum(settle.code == "l" for one in evidence.stories.values() for settle in one.settles),
        "late starts": sum(1 for _ in late_starts(evidence)),
        "recovery": summary(recovery),
        "recoveries": [round(one, 3) for one in recovery],
    }


def recoveries(evidence: Evidence) -> list[float]:
    """Return the seconds from each kill to the next claim of each message that the killed process held."""
    found = []
    for story in evidence.stories.values():
        if len(story.claims) < 2:
            continue
        for claim, following in pairwise(sorted(story.claims)):
            settled = [one for one in story.settles if one.process == claim.process and one.code == "d"]
            kills = (one for one in evidence.faults_of(claim.process, claim.at, following.at) if one.kind in _KILLS)
            kill = next(kills, None)
            if kill is not None and not any(claim.at <= one.asked <= kill.start for one in settled):
                found.append(following.at - kill.start)
    return sorted(found)


def summary(times: list[float]) -> dict[str, float]:
    if not times:
        return {}
    return {
        "count": len(times),
        "p50": round(statistics.median(times), 3),
        "p99": round(_quantile(times, 0.99), 3),
        "max": round(max(times), 3),
    }


def _quantile(times: list[float], share: float) -> float:
    return times[min(len(times) - 1, int(len(times) * share))]
