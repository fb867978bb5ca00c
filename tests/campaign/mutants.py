"""Mutants of reliq: each has one mistake that a queue must not make, and the scenario in which the checker finds it.

A mutant is a copy of the packages in a folder of its own, with one text replaced.
"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.workers import ROOT

PACKAGES = ("reliq", "monitor/reliq_monitor", "api/reliq_api")


@dataclass(frozen=True)
class Mutant:
    """`found_as`: the promises that it breaks, any of which the checker may name; `drained`: the queue never is."""

    name: str
    file: str
    old: str
    new: str
    scenario: str
    found_as: set[str]
    volume: int = 400
    setup: dict[str, Any] = field(default_factory=dict)  #: changes of the scenario's

    def made(self, folder: Path) -> Path:
        """Copy the packages and put the changed file there."""
        for package in PACKAGES:
            shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
        (folder / self.file).write_text(self.changed())
        return folder

    def changed(self) -> str:
        """Return the changed file."""
        text = (ROOT / self.file).read_text()
        assert text.count(self.old) == 1, f"{self.name}: {self.old!r} is {text.count(self.old)} times in {self.file}"
        return text.replace(self.old, self.new)

    def judged(self, folder: Path, seed: int = 1) -> dict[str, Any]:
        """Run the scenario with this mutant; return the outcome."""
        tree, histories = self.made(folder / "tree"), folder / "histories"
        histories.mkdir()
        paths = os.pathsep.join(map(str, (tree, tree / "monitor", tree / "api", ROOT)))
        arguments = [self.scenario, str(self.volume), str(seed), str(histories), json.dumps(self.setup)]
        done = subprocess.run(
            [sys.executable, "-m", "tests.campaign.run_scenario", *arguments],
            cwd=tree,  # Python looks there first for what a fork server and the checker import
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout, done.stderr
        outcome: dict[str, Any] = json.loads(done.stdout)
        assert outcome["tree"] == str(tree / "reliq")
        return outcome


MUTANTS = [
    Mutant(
        "a repeated send is not recognized",
        "reliq/lua/shared/producers.lua",
        "return last and sequence <= tonumber(string.match(last, '^%d+')) or false",
        "return false",
        "reply-cut",
        {"acked twice", "two places", "duplicated"},
        100,
    ),
    Mutant(
        "a lost answer is reported as not sent",
        "reliq/transport/retry.py",
        "        if self._sent:\n            return self._unknown(",
        "        if not self._where:\n            return self._unknown(",
        "reply-cut",
        {"unexpected"},
        150,
        {"send_timeout": 0.01},
    ),
    Mutant(
        "a message is pushed twice",
        "reliq/lua/push.lua",
        "  redis.call('LPUSH', messages, unpack(ARGV, from, math.min(from + 999, #ARGV)))\n",
        "  redis.call('LPUSH', messages, unpack(ARGV, from, math.min(from + 999, #ARGV)))\n"
        "  redis.call('LPUSH', messages, ARGV[from])\n",
        "none",
        {"acked twice", "duplicated"},
    ),
    Mutant(
        "the last message of a call is forgotten",
        "reliq/lua/push.lua",
        "for from = ELEMENTS, #ARGV, 1000 do -- the first write",
        "for from = ELEMENTS + 1, #ARGV, 1000 do -- the first write",
        "none",
        {"lost"},
    ),
    Mutant(
        "a deduplication key is ignored",
        "reliq/lua/push_keyed.lua",
        "local earlier = seen[key] or redis.call('GET', key)",
        "local earlier = seen[key]",
        "none",
        {"deduplicated twice"},
    ),
    Mutant(
        "the ack comes before the handler",
        "reliq/worker/runner.py",
        "        run = self.running[message.element] = Run(message, now)\n        try:\n            try:\n"
        "                answer = _copy_context().run(self.handler.function, message)",
        "        run = self.running[message.element] = Run(message, now)\n        try:\n            try:\n"
        "                self._store.call(self._steps.settle_op([message.element], ()))\n"
        "                answer = _copy_context().run(self.handler.function, message)",
        "sigkill",
        {"lost", "counters", "dead letters"},
        10,
    ),
    Mutant(
        "a consumer claims without being registered",
        "reliq/lua/register.lua",
        "redis.call('SADD', consumers, consumer)",
        "-- redis.call('SADD', consumers, consumer)",
        "sigkill",
        {"stuck"},
        10,
        {"work": 0.015},
    ),
    Mutant(
        "the monitor removes and does not push",
        "monitor/reliq_monitor/reclaim.py",
        'commands.append(ops.command("LPUSH", keys.messages, one.again))',
        'commands.append(ops.command("LLEN", keys.messages))',
        "sigkill",
        {"lost"},
        10,
    ),
    Mutant(
        "the monitor pushes and does not remove",
        "monitor/reliq_monitor/reclaim.py",
        'commands.append(ops.command("LREM", keys.processing(consumer), -1, one.element))',
        'commands.append(ops.command("LLEN", keys.processing(consumer)))',
        "sigkill",
        {"acked twice", "two places", "resurrected", "duplicated", "stuck"},
        10,
    ),
    Mutant(
        "a dead worker is forgotten at the third scan only, and late",
        "monitor/reliq_monitor/absences.py",
        "if one.looks >= 2 and one.since <= longest}",
        "if False}",
        "sigkill",
        {"recovered late"},
        10,
        {"lease": 9.0, "work": 0.015},
    ),
    Mutant(
        "a heartbeat renews nothing",
        "reliq/lua/heartbeat.lua",
        "renew(lease, now_ms(), lease_ms)\n",
        "",
        "none",
        {"robbed", "duplicated"},
        40,
        {"rate": 20, "batch": 1, "work": 3.0, "lease": 1.0, "mix": {"plain": 1}, "workers": 8},
    ),
    Mutant(
        "a row of acks is removed without a look at it",
        "reliq/lua/settle.lua",
        "if row > 0 and not (is_named",
        "if row < 0 and not (is_named",
        "sigstop",
        {"settled late", "lost"},
        30,
        {"work": 0.01},
    ),
    Mutant(
        "one message too many leaves with a row of acks",
        "reliq/lua/settle.lua",
        "redis.call('LTRIM', processing, 0, -1 - row)",
        "redis.call('LTRIM', processing, 0, -2 - row)",
        "none",
        {"lost"},
        4000,
    ),
    Mutant(
        "a late retry is not guarded",
        "reliq/lua/settle.lua",
        "  local again, element = ARGV[at + AGAIN], removed(at)\n",
        "  local again, element = ARGV[at + AGAIN], removed(at) or ARGV[at + AGAIN]\n",
        "sigstop",
        {"acked twice", "two places", "resurrected", "duplicated"},
        12,
        {"mix": {"failing": 1}},
    ),
    Mutant(
        "a dead letter stays in processing",
        "reliq/lua/settle.lua",
        "    elseif destination == 'dead' then\n",
        "    elseif destination == 'dead' then\n      redis.call('LPUSH', processing, element)\n",
        "none",
        {"two places", "dead letters", "stuck"},
    ),
    Mutant(
        "acks are not counted",
        "reliq/lua/settle.lua",
        "if acked > 0 then redis.call('HINCRBY', q.counters, 'acked', acked) end",
        "if acked > 1 then redis.call('HINCRBY', q.counters, 'acked', acked - 1) end",
        "none",
        {"counters"},
    ),
    Mutant(
        "the body of a handled message stays",
        "reliq/lua/settle.lua",
        "  if q.apart then delete_bodies(q.bodies, leaving) end\n",
        "",
        "none",
        {"stuck"},
    ),
    Mutant(
        "a retry comes at once",
        "reliq/lua/settle.lua",
        "index_add(delayed, index, now + ARGV[at + DELAY], id, again)",
        "index_add(delayed, index, now, id, again)",
        "none",
        {"early"},
        400,
        {"mix": {"failing": 1, "plain": 1}},
    ),
    Mutant(
        "a delayed message becomes ready too early",
        "reliq/lua/promote.lua",
        "string.format('%.0f', now + 1)",
        "string.format('%.0f', now + 400)",
        "none",
        {"early"},
    ),
    Mutant(
        "a delayed message becomes ready and stays delayed",
        "reliq/lua/promote.lua",
        "  redis.call('ZREM', delayed, unpack(due))\n",
        "  if #due > 3 then redis.call('ZREM', delayed, unpack(due))\n"
        "  else for _, one in ipairs(due) do redis.call('ZADD', delayed, now + 3000, one) end end\n",
        "none",
        {"acked twice", "two places", "resurrected", "duplicated", "stuck"},
    ),
    Mutant(
        "a cancelled message stays",
        "reliq/lua/cancel.lua",
        "local element = index_take(delayed, index, id)\nif not element then return 0 end\n",
        "local element = index_find(delayed, index, id)\nif not element then return 0 end\n",
        "none",
        {"cancelled ran"},
        400,
        {"mix": {"cancelled": 1, "plain": 1}},
    ),
    Mutant(
        "a key is released when its message is claimed",
        "reliq/lua/shared/take.lua",
        "        taken[#taken + 1] = element\n",
        "        taken[#taken + 1] = element\n        release_key(q, element)\n",
        "none",
        {"disordered"},
        400,
        {"mix": {"keyed": 1}},
    ),
    Mutant(
        "the newest message of a key comes first",
        "reliq/lua/shared/lanes.lua",
        "redis.call('ZRANGEBYLEX', q.waiting, '[' .. group, '(' .. group .. '\\255', 'LIMIT', 0, 1)[1]",
        "redis.call('ZREVRANGEBYLEX', q.waiting, '(' .. group .. '\\255', '[' .. group, 'LIMIT', 0, 1)[1]",
        "none",
        {"disordered"},
        400,
        {"mix": {"keyed": 1}},
    ),
    Mutant(
        "a message that kills its process never dies",
        "monitor/reliq_monitor/reclaim.py",
        "if charged and deliveries >= max_deliveries:",
        "if charged and deliveries >= max_deliveries + 100_000:",
        "deadly",
        {"dead letters", "stuck"},
        100,
        {"mix": {"deadly": 2, "plain": 98}},
    ),
    Mutant(
        "the neighbours of a message that kills its process are charged",
        "monitor/reliq_monitor/reclaim.py",
        "charged = charge.falls_on(message)",
        "charged = bool(charge.falls_on(message)) or True",
        "deadly",
        {"dead letters"},
        300,
        {"mix": {"deadly": 5, "plain": 95}, "rate": 0, "batch": 100},
    ),
    Mutant(
        "a claim copies messages and leaves them where they are",
        "reliq/lua/shared/take.lua",
        "local element = redis.call('RPOPLPUSH', list, processing)",
        "local element = redis.call('LINDEX', list, -1)\n"
        "      if element then redis.call('LPUSH', processing, element) end\n"
        "      if moved > 0 then redis.call('RPOP', list) end",
        "none",
        {"acked twice", "two places", "duplicated", "resurrected", "stuck", "counters"},
    ),
]
