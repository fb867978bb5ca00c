"""How many examples the properties of hypothesis are tried with: `make test-full` sets EXAMPLES=10."""

import os

_FACTOR = int(os.environ.get("EXAMPLES", "1"))


def examples(number: int) -> int:
    return number * _FACTOR
