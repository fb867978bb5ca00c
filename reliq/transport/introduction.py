"""Introduction of a connection: if it has a name, it sets that and ends the previous connection.

A request sent on a lost connection may still reach the server: from a half-open connection, or by a retransmitted
segment after a cut of the network. A claim would then move messages without its consumer knowing. So the new connection
of a consumer first makes the server close the previous one by its id; afterwards nothing sent there is carried out.
No I/O; the connections send these commands.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from reliq.transport.errors import TryAgain, refuses_for_now
from reliq.transport.resp import Command

_IDENTITY = re.compile(rb"\bid=(\d+) addr=(.+?) (?:laddr|fd)=")


class Identity(NamedTuple):
    """The identity of a connection on its server; the address tells servers apart, as all count ids from 1."""

    number: str
    address: str


class Introduced(NamedTuple):
    """The result of an introduction."""

    named: bool  #: False if the user may not run CLIENT SETNAME
    identity: Identity | None  #: None if CLIENT INFO is refused


def introduction(name: str, former: Identity | None) -> list[Command]:
    """Return the first commands on a new connection. `former`: the lost connection that it replaces.

    Without a name, a command that each user may run: a server, or a proxy, that accepts connections and does not
    answer is noticed before anything is sent that it might carry out.
    """
    if not name:
        return [("TIME",)]
    commands: list[Command] = [("CLIENT", "SETNAME", name), ("CLIENT", "INFO")]
    if former is not None:
        commands.append(("CLIENT", "KILL", "ID", former.number, "ADDR", former.address))
    return commands


def introduced(replies: Sequence[Any], was_named: bool) -> Introduced:
    """Read the replies to an introduction.

    Raises TryAgain if the server refuses temporarily, or refuses the name to a consumer that had one, which the
    monitor would then consider dead. Such a connection must be closed and made again.
    """
    for reply in replies:
        if isinstance(reply, Exception) and refuses_for_now(reply):
            raise TryAgain("it temporarily refuses CLIENT SETNAME and CLIENT INFO")
    named = not isinstance(replies[0], Exception)
    if was_named and not named:
        raise TryAgain("it no longer allows naming a connection (CLIENT SETNAME)")
    found = None if isinstance(replies[1], Exception) else _IDENTITY.search(replies[1])
    return Introduced(named, Identity(found[1].decode(), found[2].decode()) if found else None)
