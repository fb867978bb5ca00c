"""What the simulation does not know, each with the reason and with what proves it instead."""

from collections.abc import Mapping

#: Settings and options of the contract.
ENTRIES: Mapping[str, str] = {
    "max_bytes": "its least value, 1 MiB, is more than a plan sends: tests/scripts",
    "dead_max_count": "no rule says yet which dead letters may go: tests/integration/monitor, tests/combine",
    "dead_max_age": "as dead_max_count",
    "dead_to": "no rule follows a message to another queue yet: tests/integration/monitor, tests/combine",
    "durability": "one server without a disk has no weaker or stronger place: tests/integration",
    "keep_output": "no rule follows the expiry of output yet: tests/scripts",
}

#: What else reliq does.
FEATURES: Mapping[str, str] = {
    "cycle": "its messages never end, so no plan is drained: tests/scripts/test_conservation.py",
    "staging": "writing from Spark has tasks of its own: tests/integration/spark, the fault campaign",
    "deletion of a queue": "no rule forgets a queue with its counters yet: tests/combine, tests/integration",
    "breakers of handlers": "the worker of the simulation reports no runs; operators open breakers: tests/integration",
    "results": "no rule reads what is stored yet: tests/combine, tests/integration/worker",
    "notices of changed keys": "of notices it knows only BLMOVE's; these come on other connections: tests/integration",
    "consumers of Spark and kombu": "they are loops of other programs: tests/combine, tests/integration",
}
