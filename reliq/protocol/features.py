"""What features let the steps of the core do with their messages."""

from reliq.features.batches.deletion import COUNTS
from reliq.features.batches.steps import JOB_END
from reliq.features.prepared.steps import UNDECIDED
from reliq.protocol.counted import Counted
from reliq.protocol.hidden import Hidden
from reliq.protocol.job_ends import JobEnd

HIDDEN: tuple[Hidden, ...] = (UNDECIDED,)
COUNTED: tuple[Counted, ...] = (COUNTS,)
JOB_ENDS: tuple[JobEnd, ...] = (JOB_END,)
