"""Sync and asyncio have the same names: one test for both, the asyncio face made blocking."""

import asyncio
import inspect
from typing import Any


class Blocking:
    """An asyncio object with awaitables awaited at once, and with plain contexts."""

    def __init__(self, inner: Any, runner: asyncio.Runner) -> None:
        self.inner = inner
        self.runner = self._runner = runner

    def __getattr__(self, name: str) -> Any:
        return self._wrapped(getattr(self.inner, name))

    def __enter__(self) -> Any:
        self._runner.run(self.inner.__aenter__())
        return self

    def __exit__(self, *error: object) -> None:
        self._runner.run(self.inner.__aexit__(*error))

    def _wrapped(self, value: Any) -> Any:
        if inspect.iscoroutine(value):
            return self._wrapped(self._runner.run(value))
        module = type(value).__module__
        if module.startswith("reliq.aio.") or (module.startswith("reliq.features.") and module.endswith(".aio")):
            return Blocking(value, self._runner)
        if callable(value):
            return lambda *arguments, **options: self._wrapped(value(*arguments, **options))
        return value
