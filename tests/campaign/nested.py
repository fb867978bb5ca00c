"""Flows within flows by chance: what is sent, what must become of it, and what the handlers may have noted."""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import reliq
from tests.reference import flows as rules

QUEUES = ("flow-a", "flow-b", "flow-c")
_SIZES = (8, 4, 2)  #: messages of a flow, by its depth
_STATES = {rules.HANDLED: "handled", rules.DEAD_LETTER: "dead", rules.LOST: "cancelled"}


@dataclass
class Plan:
    """A message of a flow, its name, and what its handler does."""

    name: str
    queue: str
    after: list[int]  #: numbers in its flow
    rule: Literal["run", "skip"]
    dies: bool
    opens: "list[Plan]"  #: the flow that its handler opens
    state: str = ""  #: what it must come to
    body: str = field(default="", repr=False)


def plans(chance: random.Random, name: str, depth: int = 0) -> list[Plan]:
    """Return a flow by chance; the last message waits for all others."""
    found: list[Plan] = []
    for number in range(_SIZES[depth]):
        before = sorted(chance.sample(range(number), min(number, chance.choice((0, 1, 1, 2)))))
        before = [*range(number)] if number == _SIZES[depth] - 1 else before
        one = f"{name}.{number}"
        opens = plans(chance, one, depth + 1) if depth + 1 < len(_SIZES) and chance.random() < 0.35 else []
        rule: Literal["run", "skip"] = chance.choice(("run", "skip"))
        plan = Plan(one, chance.choice(QUEUES), before, rule, chance.random() < 0.06, opens)
        plan.body = json.dumps({"name": one, "dies": plan.dies, "opens": summaries(opens)})
        found.append(plan)
    return found


def summaries(members: Sequence[Plan]) -> list[dict[str, Any]]:
    """Return what the sender of a flow needs of its messages, for JSON."""
    return [{"queue": one.queue, "body": one.body, "after": one.after, "rule": one.rule} for one in members]


def send(flow: reliq.Flow, members: Sequence[dict[str, Any]]) -> None:
    """Add the messages of these summaries to a flow."""
    sent: list[reliq.FlowMessage] = []
    for one in members:
        after = [sent[other] for other in one["after"]]
        sent.append(flow.send(one["queue"], one["body"], after=after, on_failure=one["rule"]))


class Outer:
    """A flow, sent, with all that its handlers open."""

    def __init__(self, app: reliq.Reliq, chance: random.Random, name: str) -> None:
        self.members = plans(chance, name)
        self.every = {one.name: one for one in every(self.members)}
        _predict(self.members)
        with app.flow() as flow:
            self.id = flow.id
            send(flow, summaries(self.members))

    def differs(self, app: reliq.Reliq) -> list[str]:
        """Return what is not yet as it must be."""
        return [*_differences(app, self.id, self.members)]

    def given_up(self, app: reliq.Reliq) -> int:
        """Return how many flows were given up, those too whose messages had all run before."""
        return _given_up_in(app, self.id)


def every(members: Sequence[Plan]) -> Iterator[Plan]:
    for one in members:
        yield one
        yield from every(one.opens)


def _predict(members: Sequence[Plan]) -> None:
    """Say of each message what it must come to, by the rules of the reference model, whatever runs first."""
    all_flows, names = rules.Flows(), dict[str, Plan]()

    def add(some: Sequence[Plan], parent: rules.Place | None) -> None:
        names.update((one.name, one) for one in some)
        all_flows.add(rules.Flow([rules.Member("q", one.name, tuple(one.after), one.rule) for one in some], "", parent))

    add(members, None)
    skipped: set[str] = set()
    while runs := [name for name in names if _may_run(all_flows, name)]:
        for name in runs:
            if names[name].opens:
                add(names[name].opens, ("q", name))
            all_flows.became("q", name, rules.DEAD_LETTER if names[name].dies else rules.HANDLED)
            for _, told, end in all_flows.tell():
                if end == rules.IS_SKIPPED:
                    skipped.add(told)
                    all_flows.became("q", told, rules.LOST)
    for name, plan in names.items():
        member = all_flows.member("q", name)
        assert member is not None
        plan.state = "skipped" if name in skipped else _STATES[member.counts_as]


def _may_run(all_flows: rules.Flows, name: str) -> bool:
    member = all_flows.member("q", name)
    return member is not None and member.became == rules.OPEN and not member.waits


def _differences(app: reliq.Reliq, flow: str, members: Sequence[Plan]) -> Iterator[str]:
    progress = app.flow_progress(flow)
    there = progress.members if progress else ()
    if len(there) != len(members):
        yield f"flow {flow} has {len(there)} messages, not {len(members)}"
        return
    for one, plan in zip(there, members, strict=True):
        if one.state != plan.state:
            yield f"{plan.name} is {one.state}, not {plan.state}"
        opens = bool(plan.opens) and plan.state != "skipped"
        inner = [flow for flow in one.flows if not _is_given_up(app, flow)]
        if len(inner) != opens:
            yield f"{plan.name} has opened {len(inner)} flows"
        elif opens:
            yield from _differences(app, inner[0], plan.opens)


def _is_given_up(app: reliq.Reliq, flow: str) -> bool:
    """Whether a flow was sent in part, by a run that was killed."""
    progress = app.flow_progress(flow)
    return progress is not None and progress.state == "abandoned"


def _given_up_in(app: reliq.Reliq, flow: str) -> int:
    progress = app.flow_progress(flow)
    inner = [other for one in (progress.members if progress else ()) for other in one.flows]
    return sum(_is_given_up(app, one) + _given_up_in(app, one) for one in inner)


class Log:
    """What the handlers have noted, in its order."""

    def __init__(self, log: Path, outers: Sequence[Outer]) -> None:
        self._plans = {name: plan for one in outers for name, plan in one.every.items()}
        self._before = {
            one.name: [some[number] for number in one.after]
            for outer in outers
            for some in (outer.members, *(plan.opens for plan in outer.every.values()))
            for one in some
        }
        self._over: set[str] = set()  #: those whose handler has ended
        self.runs = 0
        for line in log.read_text().splitlines():
            self._check(json.loads(line))

    def _check(self, line: dict[str, Any]) -> None:
        name = line["name"]
        if line["what"] == "end":
            self._over.add(name)
            return
        self.runs += 1
        early = [one.name for one in self._before[name] if not self._has_ended(one)]
        assert early == [], f"{name} began before {early} had ended"
        assert self._plans[name].state != "skipped", f"{name} runs"
        ran = [None if one.dies or one.state == "skipped" else one.name for one in self._before[name]]
        assert line["results"] == ran, f"{name} has got {line['results']}, not {ran}"

    def _has_ended(self, plan: Plan) -> bool:
        """Whether the handler of a message has ended, and the last messages of the flow that it has opened."""
        if plan.state == "skipped":  # nobody notes when
            return True
        inner = {number for one in plan.opens for number in one.after}
        last = [one for number, one in enumerate(plan.opens) if number not in inner]
        return plan.name in self._over and (plan.dies or all(map(self._has_ended, last)))
