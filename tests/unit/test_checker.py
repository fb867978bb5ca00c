"""The checker of the fault campaign: each promise, kept in one small history and broken in one change of it."""

import json
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from tests.campaign.checker.reading import Evidence
from tests.campaign.checker.verdict import judge
from tests.support.workers import ROOT

SENT = [
    (1.0, "send", "invoke", {"messages": [{"name": "p:1", "key": "k"}, {"name": "p:2", "key": "k", "delay": 1.0}]}),
    (1.1, "send", "ok", {"ids": ["a", "b"]}),
    (1.2, "send", "invoke", {"messages": [{"name": "p:3", "do": "reject"}]}),
    (1.3, "send", "ok", {"ids": ["c"]}),
    (1.4, "send", "invoke", {"messages": [{"name": "p:4", "delay": 9.0}]}),
    (1.5, "send", "ok", {"ids": ["d"]}),
    (1.6, "cancel", "invoke", {"id": "d"}),
    (1.7, "cancel", "ok", {"answer": "cancelled"}),
    (1.8, "send", "invoke", {"messages": [{"name": "p:5", "dedup": "x"}]}),
    (1.9, "send", "ok", {"ids": ["e"]}),
    (1.9, "send", "invoke", {"messages": [{"name": "p:6"}]}),
    (1.9, "send", "fail", {"error": "QueueFull", "text": "full"}),
]


def handled(at, identity, name, end="ok", to="ack", code="d"):
    """A message that arrives, runs and is settled, in this second."""
    how = {} if end == "ok" else {"then": end}
    return [
        (at + 0.1, "claim", "ok", {"since": at, "ids": [identity]}),
        (at + 0.2, "run", "invoke", {"id": identity, "name": name}),
        (at + 0.3, "run", "ok" if end == "ok" else "fail", how),
        (at + 0.4, "settle", "invoke", {"ids": [identity], "to": [to]}),
        (at + 0.5, "settle", "ok", {"codes": code}),
    ]


RUNS = [
    *handled(2, "a", "p:1"),
    *handled(3, "b", "p:2"),
    *handled(4, "c", "p:3", "rejected", "dead"),
    *handled(5, "e", "p:5"),
]


def element(identity, reason=""):
    extra = {"reason": reason} if reason else {}
    return msgspec.msgpack.encode([1, identity, 7, 0, 0, False, 0, {}, b"", extra]).hex()


COUNTERS = {"enqueued": 5, "acked": 3, "cancelled": 1, "dead_lettered": 1}


def hashed(counters):
    return {name.encode().hex(): str(value).encode().hex() for name, value in counters.items()}


def judged(folder, producer=SENT, worker=RUNS, faults=(), dump=None, counters=COUNTERS, **promised):
    """What the program says of these histories; calls end in the order in which they began."""
    for name, events in (("producer-1", producer), ("worker-2", worker)):
        lines, calls = [], 0
        for at, function, state, fields in events:
            calls += state == "invoke"
            lines.append(json.dumps({"t": at, "f": function, "s": state, "call": calls, **fields}))
        (folder / f"{name}.history").write_text("\n".join(lines))
    noted = [{"t": 0, "f": "fault", "s": "ok", **fault} for fault in faults]
    (folder / "operator.history").write_text("\n".join(map(json.dumps, noted)))
    keys = {"dead": [element("c", "rejected")], "counters": hashed(counters)} | (dump or {})
    (folder / "dump.json").write_text(json.dumps({"reliq:{campaign}:" + name: one for name, one in keys.items()}))
    (folder / "run.json").write_text(json.dumps({"duplicates": "explained", "recovery_limit": None} | promised))
    return judge(Evidence(folder))


def test_a_history_without_a_flaw_is_valid(tmp_path):
    verdict = judged(tmp_path)
    assert (verdict["valid"], verdict["broken"]) == (True, {})
    assert (verdict["messages"], verdict["handled"], verdict["refused sends"]) == (5, 3, {"QueueFull": 1})


AGAIN = handled(9, "a", "p:1")
FOUND: dict[str, dict[str, Any]] = {
    "lost": {"worker": RUNS[:15], "counters": {**COUNTERS, "acked": 2, "enqueued": 4}},
    "unexpected": {"worker": [*RUNS, *handled(9, "z", "p:9")], "counters": {**COUNTERS, "enqueued": 6, "acked": 4}},
    "resurrected": {"worker": [*RUNS, AGAIN[0]]},
    "acked twice": {"worker": [*RUNS, *AGAIN]},
    "duplicated": {"worker": [*RUNS, *AGAIN]},
    "two places": {"dump": {"dead": [element("c", "rejected"), element("c", "rejected")[:-2] + "00"]}},
    "stuck": {"worker": RUNS[:15], "dump": {"messages": [element("e")]}, "counters": {**COUNTERS, "acked": 2}},
    "early": {"worker": [*RUNS[:5], *handled(1.2, "b", "p:2"), *RUNS[10:]]},
    "cancelled ran": {"worker": [*RUNS, *handled(9, "d", "p:4")]},
    "disordered": {"worker": [*handled(8, "a", "p:1"), *RUNS[5:]]},
    "dead letters": {"dump": {"dead": []}},
    "deduplicated twice": {"producer": [*SENT, SENT[8], (1.9, "send", "ok", {"ids": ["f"]})]},
    "robbed": {"worker": [*RUNS[:15], *handled(5, "e", "p:5", code="l")]},
    "counters": {"counters": {**COUNTERS, "acked": 4}},
    "recovered late": {
        "worker": [RUNS[0], *handled(9, "a", "p:1"), *RUNS[5:]],
        "faults": [{"kind": "sigkill", "process": "worker-2", "from": 2.5, "to": 2.5}],
        "recovery_limit": 3.0,
    },
}


@pytest.mark.parametrize("rule", FOUND)
def test_each_broken_promise_is_found(tmp_path, rule):
    assert rule in judged(tmp_path, **FOUND[rule])["broken"]


def test_a_late_settle_that_was_accepted_is_found(tmp_path):
    (tmp_path / "worker-3.history").write_text(
        json.dumps({"t": 2.35, "f": "claim", "s": "ok", "since": 2.32, "ids": ["a"]})
    )
    assert "settled late" in judged(tmp_path)["broken"]


def test_a_second_run_is_explained_by_the_fault_between_unless_the_row_allows_none(tmp_path):
    runs = [*RUNS[:3], *handled(9, "a", "p:1"), *RUNS[5:]]
    faults = [{"kind": "sigkill", "process": "worker-2", "from": 2.5, "to": 2.5}]
    verdict = judged(tmp_path, worker=runs, faults=faults)
    assert "duplicated" not in verdict["broken"]
    assert verdict["extra runs"] == {"sigkill": 1}
    assert "duplicated" in judged(tmp_path, worker=runs, faults=faults, duplicates="none")["broken"]


def test_what_redis_may_have_forgotten_is_counted_apart(tmp_path):
    faults = [{"kind": "redis-kill", "process": "*", "from": 2.0, "to": 2.1, "rewound": 1.85}]
    verdict = judged(tmp_path, worker=RUNS[:15], faults=faults, counters={**COUNTERS, "acked": 2, "enqueued": 4})
    assert "lost" not in verdict["broken"]
    assert verdict["lost in a window"] == 1


def test_the_checker_imports_none_of_the_code_that_it_judges():
    code = "import sys, tests.campaign.checker.verdict; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    ours = {name for name in done.stdout.split() if name.startswith(("tests", "reliq"))}
    assert {name for name in ours if not name.startswith("tests.campaign.checker")} == {"tests", "tests.campaign"}


@pytest.mark.parametrize(("counters", "status"), [(COUNTERS, 0), ({**COUNTERS, "acked": 4}, 1)])
def test_the_checker_is_a_program_that_prints_its_verdict(tmp_path, counters, status):
    expected = judged(tmp_path, counters=counters)
    command = [sys.executable, "-m", "tests.campaign.checker", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, json.loads(done.stdout)) == (status, expected)


def test_a_run_that_a_paused_process_began_late_is_explained_and_counted(tmp_path):
    others = handled(2.2, "a", "p:1")
    lines = [json.dumps({"t": at, "f": name, "s": state, "call": place, **fields})
             for place, (at, name, state, fields) in enumerate(others)]  # fmt: skip
    (tmp_path / "worker-3.history").write_text(lines[0] + "\n" + lines[1])
    late = [RUNS[0], (2.9, *RUNS[1][1:]), *RUNS[5:]]
    faults = [{"kind": "sigstop", "process": "worker-2", "from": 2.15, "to": 2.8}]
    verdict = judged(tmp_path, worker=late, faults=faults)
    assert "duplicated" not in verdict["broken"]
    assert (verdict["late starts"], verdict["extra runs"]) == (1, {"sigstop": 1})
    assert "duplicated" in judged(tmp_path, worker=late)["broken"]


def claimed_before_and_run_after(folder, also):
    """A claim at 2.0 that Redis forgot at 2.2, and that its process runs at 2.9; then another run follows."""
    events = [RUNS[0], (2.9, *RUNS[1][1:]), (4.5, *RUNS[2][1:])]
    lines = [json.dumps({"t": at, "f": function, "s": state, "call": 1, **fields})
             for at, function, state, fields in also[:3]]  # fmt: skip
    (folder / "worker-3.history").write_text("\n".join(lines))
    faults = [{"kind": "redis-kill", "process": "*", "from": 2.2, "to": 2.8, "rewound": 1.0}]
    with_fault = judged(folder, worker=events, faults=faults)["broken"]
    return set(with_fault), set(judged(folder, worker=events)["broken"])


def test_a_claim_that_redis_forgot_explains_a_second_run_of_a_message_that_was_sent_again(tmp_path):
    found, without = claimed_before_and_run_after(tmp_path, handled(3, "a", "p:1"))
    assert "duplicated" not in found
    assert "duplicated" in without


def test_a_claim_that_redis_forgot_explains_that_two_messages_of_a_key_run_at_a_time(tmp_path):
    found, without = claimed_before_and_run_after(tmp_path, handled(3, "b", "p:2"))
    assert "disordered" not in found
    assert "disordered" in without
