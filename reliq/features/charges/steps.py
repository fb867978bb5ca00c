"""The steps that charge a run for what it has cost."""

from typing import Any

from reliq.contract import values
from reliq.features.charges import ops as own
from reliq.features.charges.model import Charge
from reliq.model.keys import QueueKeys
from reliq.model.message import Message
from reliq.ops import Steps
from reliq.ops.held import not_held
from reliq.protocol.consumer import ConsumerSteps
from reliq.protocol.features import Act
from reliq.protocol.holds import of_lease


def _charged(keys: QueueKeys, message: Message, actual: int) -> Steps[None]:
    yield own.charge(keys, message, actual)


def _charged_here(consumer: ConsumerSteps, message: Message, actual: int) -> Steps[None]:
    consumer.lives.of(message).charged = True
    yield from _charged(consumer.keys, message, actual)
    consumer.limits.ask_again()


def _charge(consumer: ConsumerSteps, message: Message, asked: Charge) -> Any:
    """Do what a handler asks for, though its lease may be lost; an async handler gets what it is to await."""
    if not consumer.runs(message):
        raise not_held(message)
    return consumer.run_report(_charged_here(consumer, message, asked.actual))


CHARGES = Act({Charge: "charge"}, _charge)


def charge_leased(keys: QueueKeys, lease: str, identity: str, actual: object) -> Steps[None]:
    """Charge a message of a lease over HTTP; raises LeaseLost, InvalidSetting."""
    checked = values.whole(actual, "actual", 0, values.MAX_COST)
    hold = yield from of_lease(keys, lease, identity)
    yield from _charged(keys, hold.message, checked)
