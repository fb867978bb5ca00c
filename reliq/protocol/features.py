"""What features let the steps of the core do with their messages."""

from collections.abc import Callable, Collection

from reliq.features.batches.deletion import COUNTS
from reliq.features.batches.steps import JOB_END
from reliq.features.charges.steps import CHARGES
from reliq.features.flows.steps import ALONG as MEMBERS
from reliq.features.flows.steps import OF_FLOWS
from reliq.features.output.steps import ALONG as OUTPUT
from reliq.features.output.steps import EMITS
from reliq.features.prepared.steps import UNDECIDED
from reliq.features.receipts.steps import IN_FLIGHT
from reliq.features.results.steps import has_result
from reliq.features.steps.moving import ALONG as RECORDS
from reliq.features.steps.moving import copy_early
from reliq.features.steps.parked import WAITING
from reliq.features.steps.steps import DURABLE, recorded_tag
from reliq.features.tracking.deletion import forget
from reliq.model.keys import QueueKeys
from reliq.ops import Op, Steps
from reliq.protocol.act import Act
from reliq.protocol.along import Along
from reliq.protocol.counted import Counted
from reliq.protocol.hidden import Hidden
from reliq.protocol.job_ends import JobEnd

HIDDEN: tuple[Hidden, ...] = (UNDECIDED, IN_FLIGHT, WAITING)
COUNTED: tuple[Counted, ...] = (COUNTS,)
#: Who knows whether a message that is nowhere was handled.
HANDLED: tuple[Callable[[QueueKeys, str], Steps[bool]], ...] = (has_result,)
#: Delete what is kept for settings of a queue that were reset.
FORGETS: tuple[Callable[[QueueKeys, Collection[str]], Steps[None]], ...] = (forget,)
JOB_ENDS: tuple[JobEnd, ...] = (JOB_END,)
ACTS: tuple[Act, ...] = (DURABLE, EMITS, OF_FLOWS, CHARGES)
#: The push of a message about which a handler has stored something: one that gets on is no poison.
TAGS: tuple[Callable[[QueueKeys, str], Op[str | None]], ...] = (recorded_tag,)
#: What belongs to messages that a monitor takes to another partition.
ALONG: tuple[Along, ...] = (RECORDS, MEMBERS, OUTPUT)
#: What the first partition keeps for messages that have not come: a new one gets it before it takes messages.
EARLY: tuple[Callable[[QueueKeys, QueueKeys], Steps[None]], ...] = (copy_early,)
