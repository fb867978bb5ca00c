"""What the simulation has to know about a request."""

from typing import Any

from reliq.ops import Op, Request, Sleep, Transaction, Watch


def blocking(request: Request) -> tuple[str, float] | None:
    """Return the key for which a request waits, and how long; None if it does not wait."""
    ops = (request,) if isinstance(request, Op) else request if isinstance(request, list) else ()
    for op in ops:
        if op.blocks:
            return str(op.command[1]), op.blocks
    return None


def causes(request: Request) -> list[str]:
    """Return the names of the scripts and commands of a request."""
    match request:
        case Op():
            return [request.script.name if request.script else str(request.command[0])]
        case Transaction():
            return ["EXEC", *(one.script.name for one in request.ops if one.script)]
        case Watch():
            return ["WATCH"]
        case Sleep():
            return []
        case _:
            return [name for one in request for name in causes(one)]


def ops_of(request: Request) -> list[Op[Any]]:
    """Return the ops of a request."""
    match request:
        case Op():
            return [request]
        case Transaction():
            return list(request.ops)
        case list():
            return request
        case _:
            return []


def label(request: Request) -> str:
    return "+".join(causes(request))
