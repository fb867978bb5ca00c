"""How a named connection introduces itself: its name, and the end of the connection before it.

A request that was sent on a connection which is lost may still reach the server: from a half-open connection, by a
segment that is sent again, when a network heals. A claim would then move messages that its consumer never hears of.
So a consumer's new connection first has the server close the former one by its id; afterwards nothing that was sent
there is carried out. Pure: the links of `store` and `aiostore` send it.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from reliq.transport.errors import TryAgain, refuses_for_now
from reliq.transport.resp import Command

_IDENTITY = re.compile(rb"\bid=(\d+) addr=(\S+)")


class Identity(NamedTuple):
    """A connection as its server knows it. The address tells servers apart, which all count their ids from 1."""

    number: str
    address: str


class Introduced(NamedTuple):
    """What the server knows of a connection now."""

    named: bool  #: it has its name; False where the user may not use CLIENT SETNAME
    identity: Identity | None  #: None where CLIENT INFO is refused


def introduction(name: str, former: Identity | None) -> list[Command]:
    """The first commands on a new connection. `former`: the lost connection that it replaces."""
    commands: list[Command] = [("CLIENT", "SETNAME", name), ("CLIENT", "INFO")]
    if former is not None:
        commands.append(("CLIENT", "KILL", "ID", former.number, "ADDR", former.address))
    return commands


def introduced(replies: Sequence[Any], was_named: bool) -> Introduced:
    """Read the replies to an introduction.

    Raises Busy where the server refuses for the moment, or refuses the name to a consumer that had one: its monitor
    would take the consumer for dead. Such a connection must be closed and made again.
    """
    for reply in replies:
        if isinstance(reply, Exception) and refuses_for_now(reply):
            raise TryAgain("it does not let a connection introduce itself for now")
    named = not isinstance(replies[0], Exception)
    if was_named and not named:
        raise TryAgain("it does not let a connection be named any more (CLIENT SETNAME)")
    found = None if isinstance(replies[1], Exception) else _IDENTITY.search(replies[1])
    return Introduced(named, Identity(found[1].decode(), found[2].decode()) if found else None)
