"""The slices, joined to the core: what each of them adds to the lists of reliq.protocol.features.

A line here is an entry of its slice, and goes with it (docs/decisions/0014-slices.md).
"""

from reliq.features.batches.deletion import COUNTS
from reliq.features.batches.steps import JOB_END, sending
from reliq.features.charges.steps import CHARGES
from reliq.features.flows.steps import CARRIED as MEMBERS
from reliq.features.flows.steps import OF_FLOWS
from reliq.features.output.steps import CARRIED as OUTPUT
from reliq.features.output.steps import EMITS
from reliq.features.prepared.steps import UNDECIDED
from reliq.features.receipts.steps import IN_FLIGHT
from reliq.features.results.steps import has_result
from reliq.features.schedules.steps import NOTES_OF_QUEUES as SCHEDULES
from reliq.features.steps.moving import CARRIED as RECORDS
from reliq.features.steps.moving import copy_early
from reliq.features.steps.ops import recorded_tag
from reliq.features.steps.parked import WAITING
from reliq.features.steps.steps import DURABLE
from reliq.features.topics.deletion import ALTERNATE, BINDINGS
from reliq.features.tracking.cancelling import cancel_with
from reliq.features.tracking.deletion import forget
from reliq.protocol import features as core

core.HIDDEN += (UNDECIDED, IN_FLIGHT, WAITING)
core.COUNTED += (COUNTS,)
core.NOTES += (BINDINGS, SCHEDULES, ALTERNATE)
core.HANDLED += (has_result,)
core.CANCELS += (cancel_with,)
core.FORGETS += (forget,)
core.JOB_ENDS += (JOB_END,)
core.PRODUCERS += (sending,)
core.ACTS += (DURABLE, EMITS, OF_FLOWS, CHARGES)
core.TAGS += (recorded_tag,)
core.CARRIED += (RECORDS, MEMBERS, OUTPUT)
core.EARLY += (copy_early,)
