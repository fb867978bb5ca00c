"""What features let the steps of the core do with their messages."""

from collections.abc import Callable, Collection

from reliq.features.batches.deletion import COUNTS
from reliq.features.batches.steps import JOB_END
from reliq.features.prepared.steps import UNDECIDED
from reliq.features.receipts.steps import IN_FLIGHT
from reliq.features.results.steps import has_result
from reliq.features.tracking.deletion import forget
from reliq.model.keys import QueueKeys
from reliq.ops import Steps
from reliq.protocol.counted import Counted
from reliq.protocol.hidden import Hidden
from reliq.protocol.job_ends import JobEnd

HIDDEN: tuple[Hidden, ...] = (UNDECIDED, IN_FLIGHT)
COUNTED: tuple[Counted, ...] = (COUNTS,)
#: Who knows whether a message that is nowhere was handled.
HANDLED: tuple[Callable[[QueueKeys, str], Steps[bool]], ...] = (has_result,)
#: Delete what is kept for settings of a queue that were reset.
FORGETS: tuple[Callable[[QueueKeys, Collection[str]], Steps[None]], ...] = (forget,)
JOB_ENDS: tuple[JobEnd, ...] = (JOB_END,)
