# Generated from reliq/features/results/aio.py by tools/generate_sync.py: do not edit
"""What a queue has of results."""

from typing import Any

from reliq.contract.values import Duration
from reliq.features.results.steps import result_of
from reliq.protocol.queue import QueueSteps
from reliq.transport.store import Store


class ResultCalls:
    """What a queue has of what its handlers have returned."""

    _store: Store
    _steps: QueueSteps

    def result(self, id: str, *, wait: Duration = 0) -> Any:
        """Return what the handler of a message returned: JSON as Python values, or bytes.

        For handlers with `result=`. `wait`: how long to wait, without polling. Raises HandlerFailed and NoResult.
        """
        return self._store.run_apart(result_of(self._steps.homes, id, wait))
