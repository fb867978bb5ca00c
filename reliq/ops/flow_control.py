"""Ops of flow control: claims within the limits of a queue, its circuit breaker, and holding it back."""

from collections.abc import Sequence
from typing import Any, Literal

from reliq.model.breaker import Breaker
from reliq.model.keys import QueueKeys
from reliq.ops import signatures
from reliq.ops.commands import names_of
from reliq.ops.consumer import Claimed
from reliq.ops.request import Call, Op, milliseconds, scripted, scripted_within
from reliq.ops.schema import Flow

#: Why a claim got fewer messages than it asked for; PROBE: it got the one message by which an open breaker is tried.
Reason = Literal["", "rate", "concurrency", "breaker", "held", "probe"]


class LimitedClaim(Claimed, frozen=True):
    """The reply of claim_limited. `limited`: the queue has limits; `ok`: it has none any more.

    `uncounted`: `tally` has to count what consumers hold, and nothing was done.
    """

    reason: Reason = ""
    wait: float = 0.0  #: seconds until the next claim may bring messages; 0 = when there are some
    suspect: str = ""  #: for the next claim


def claim_limited(
    keys: QueueKeys, consumer: str, lease: float, limit: int, room: int, reports: bool, suspect: str = ""
) -> Op[LimitedClaim]:
    """Claim up to `limit` messages, as many as the limits of the queue allow now.

    `reports`: the caller tells `breaker` how its messages end. `suspect`: of the answer before; what is known of this
    consumer is compared with its list, or it has the probe of a breaker. Not repeatable, as claim.
    """
    call = signatures.claim_limited(
        keys,
        processing=keys.processing(consumer),
        lease=keys.lease(consumer),
        suspect_list=keys.processing(suspect) if suspect else None,
        lease_ms=milliseconds(lease),
        limit=limit,
        room=room,
        consumer=consumer,
        reports=reports,
        suspect=suspect or None,
    )
    return scripted(call, _read_claim, repeatable=False)


def _read_claim(reply: list[Any]) -> LimitedClaim:
    status, now, *rest = reply
    match status:
        case b"ok" | b"limited":
            reason, wait, suspect, *elements = rest
            return LimitedClaim(
                status.decode(), now, elements, reason=reason.decode(), wait=wait / 1000, suspect=suspect.decode()
            )
        case _:
            return LimitedClaim(status.decode(), now, [])


def _tally(keys: QueueKeys, members: Sequence[str], counter: str, begins: bool, ends: bool) -> Call:
    """Return the call that counts what these consumers hold. `counter`: who counts all of them; "" = nobody does."""
    return signatures.tally(
        keys, lists=map(keys.processing, members), counter=counter, begins=begins, ends=ends, members=members
    )


def tally(keys: QueueKeys, members: Sequence[str], counter: str, begins: bool, ends: bool) -> Op[bool]:
    """Count what some of all consumers hold; the reply is False if another one counts."""
    return scripted(_tally(keys, members, counter, begins, ends), bool)


def tally_within(keys: QueueKeys, consumer: str) -> Op[int]:
    """Note, inside a Transaction, how many messages are left to a consumer."""
    return scripted_within(_tally(keys, [consumer], "", begins=False, ends=False))


def some_consumers(keys: QueueKeys, cursor: int, many: int) -> Op[tuple[int, list[str]]]:
    """Read about so many consumers: the next cursor, 0 at the end, and their names."""
    return Op(("SSCAN", keys.consumers, cursor, "COUNT", many), _read_some)


def _read_some(reply: list[Any]) -> tuple[int, list[str]]:
    return int(reply[0]), names_of(reply[1])


def lead(keys: QueueKeys, consumer: str, seconds: float) -> Op[bool]:
    """Ask to be the one consumer that waits for messages so long; the reply is False if another one does."""
    return scripted(signatures.lead(keys, consumer=consumer, wait_ms=milliseconds(seconds)), bool)


def wait_for_messages(keys: QueueKeys, seconds: float) -> Op[bool]:
    """Wait until a message is ready, and take none: it is moved from the tail of its list to the tail."""
    return Op(("BLMOVE", keys.messages, keys.messages, "RIGHT", "RIGHT", f"{seconds:.3f}"), _is_there, blocks=seconds)


def wait_for_slot(keys: QueueKeys, seconds: float) -> Op[bool]:
    """Wait until this consumer is the one of those that wait which should claim."""
    return Op(("BLPOP", keys.freed, f"{seconds:.3f}"), _is_there, blocks=seconds)


def _is_there(reply: Any) -> bool:
    return reply is not None


def breaker(keys: QueueKeys, rule: Breaker, passed: int, failed: int, probe: str) -> Op[tuple[str, str]]:
    """Count how runs ended, and move the breaker; the reply has its states before and after.

    `probe`: "passed", "failed" or "untried" if the probe is one of them, else "". A repeated call counts them twice.
    """
    call = signatures.breaker(
        keys,
        passed=passed,
        failed=failed,
        probe=probe,
        threshold=rule.threshold,
        fewest=rule.minimum,
        window=milliseconds(rule.window_seconds),
        open_for=milliseconds(rule.open_seconds),
    )
    return scripted(call, lambda reply: (reply[0].decode(), reply[1].decode()))


def switch_breaker(keys: QueueKeys, open_for: float, call: str | None = None) -> Op[str]:
    """Open the breaker for so many seconds, or close it with 0; the reply is the state before."""
    switching = signatures.switch_breaker(keys, open_for=milliseconds(open_for), call=call)
    return scripted(switching, lambda reply: reply.decode())


def hold(keys: QueueKeys, seconds: float) -> Op[int]:
    """Give out no message of the queue for so many seconds; the reply is the ms at which that ends."""
    return scripted(signatures.hold(keys, held_ms=milliseconds(seconds)))


def held_until(keys: QueueKeys) -> Op[int]:
    """Read the ms at which the latest hold of the queue ends; 0: it was never held."""
    return Op(("HGET", keys.flow, Flow.HELD_UNTIL), lambda reply: int(reply or 0))


def breaker_until(keys: QueueKeys) -> Op[int]:
    """Read the ms at which the open breaker gives out its next probe; 0: it is closed."""
    return Op(("HGET", keys.flow, Flow.BREAKER_UNTIL), lambda reply: int(reply or 0))


def prober(keys: QueueKeys) -> Op[bytes | None]:
    """Read which consumer holds, or last held, the probe of the breaker; None if no consumer has held one."""
    return Op(("HGET", keys.flow, Flow.PROBER))


def hold_key(keys: QueueKeys, group: str, seconds: float) -> Op[int]:
    """Give out no message of one key for so many seconds; the reply is the ms at which that ends."""
    call = signatures.hold_key(keys, group=group, held_ms=milliseconds(seconds))
    return scripted(call)
