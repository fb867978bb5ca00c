"""One call of each script of flows, and what a queue has of them."""

from reliq import ops
from reliq.features.flows import ops as own
from reliq.features.flows.model import Plan
from reliq.features.flows.stored import Behind, Noted
from reliq.model.message import Message
from reliq.model.outgoing import NewMessage
from reliq.ops import Entry
from reliq.ops.held import Hold
from tests.support.state import KEYS, World, element


def plan() -> Plan:
    made = Plan()
    made.id = made.producer = "flow"
    made.add("q", NewMessage(b"", id="m"), (), "fail")
    return made


FIRST = Noted("first", "flow 0", behind=[Behind(0, "later", "")])
MESSAGE = Message.decode("q", element("flowing"))
CALLS = {
    "flow_wait": lambda: own.flow_wait(KEYS, "flow", 1, [("later", 2, "fail")]),
    "flow_note": lambda: own.flow_note(KEYS, [FIRST], brought=KEYS.dedup("flow")),
    "flow_tell": lambda: own.flow_tell(KEYS, [("flowing", 0, "purged")]),
    "flow_bury": lambda: own.flow_bury(KEYS, "flowing", element("flowing"), element("again"), "dead:predecessor"),
    "flow_news": lambda: own.flow_news(KEYS, 10),
    "flow_told": lambda: own.flow_told(KEYS, 1),
    "flow_hold": lambda: own.flow_hold(Hold(KEYS, "w", MESSAGE), "opened"),
    "flow_opened": lambda: own.flow_opened(KEYS, "flowing", "opened", "acked"),
    "flow_drop": lambda: own.flow_drop(KEYS, "flow", ["flowing"]),
    "flow_open": lambda: own.flow_open(plan(), 0, 1),
    "flow_change": lambda: own.flow_change("flow", "sending", "open"),
    "flow_ended": lambda: own.flow_ended("flow", [(0, "acked")]),
}


def given(world: World) -> None:
    world.run(own.flow_wait(KEYS, "flow", 1, [("flowing", 1, "fail")]))
    world.run(ops.enqueue(KEYS, [], [Entry("flowing", element("flowing"), 0.0, None, 0.0)]))
    world.redis.hset(KEYS.followed, mapping={"\v\v\v": 1, "\v\v\v\v": 0, "\v\v\v\v1": "acked a flow 1\n"})
    world.redis.hset(KEYS.config, "flowed", 1)
    world.run(own.flow_open(plan(), 0, 1))
    world.redis.hset(KEYS.followed, "\v\vflowing", "flow 0 opened\n")
    world.redis.hincrby(KEYS.config, "flowing", 1)
