"""Changes of the scripts of reliq, for a while."""

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from reliq.ops.request import script_named
from tests.support.scripts import scripts

Mutant = Callable[[], contextlib.AbstractContextManager[Any]]


@contextlib.contextmanager
def script(pattern: str, replacement: str) -> Iterator[None]:
    """Change every script that has this text."""
    with contextlib.ExitStack() as stack:
        changed = 0
        for name in scripts():
            one = script_named(name)
            source = re.sub(pattern, replacement, one.source)
            if source != one.source:
                sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
                stack.enter_context(mock.patch.multiple(one, source=source, sha=sha))
                changed += 1
        assert changed, f"no script has {pattern!r}"
        yield
