"""Steps with something else between them: what another process does, or the death of this one."""

from collections.abc import Callable
from typing import Any

import pytest

from reliq.ops import Steps

DEATH = object()


def beginning(monkeypatch: pytest.MonkeyPatch, kind: type, method: str, act: Callable[[], object]) -> None:
    """Act, as another process, when a method of this kind is called."""
    done = getattr(kind, method)

    def late(self: Any, *arguments: Any) -> Any:
        act()
        return done(self, *arguments)

    monkeypatch.setattr(kind, method, late)


def hooked(steps: Steps[Any], after: int, hook: Callable[[], object]) -> Steps[Any]:
    """Run steps, and `hook` when the request of this number has its answer; if it returns DEATH, that ends them."""
    number, answer, error = 0, None, None
    while True:
        try:
            request = steps.throw(error) if error else steps.send(answer)
        except StopIteration as end:
            return end.value
        error = None
        try:
            answer = yield request
        except Exception as caught:
            error = caught
            continue
        number += 1
        if number == after and hook() is DEATH:
            steps.close()
            return DEATH
