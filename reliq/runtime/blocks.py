"""Blocks: what asyncio opens with `async with`."""

from types import TracebackType
from typing import NoReturn

from reliq.errors import InvalidSetting


class AsyncBlock:
    """A plain `with` gets an error that says what to write."""

    def __enter__(self) -> NoReturn:
        raise InvalidSetting(f"this is a reliq.aio.{type(self).__name__}: open it with `async with`")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> NoReturn:
        raise AssertionError("never reached: __enter__ raises")
