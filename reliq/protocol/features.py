"""What features let the steps of the core do with their messages."""

from reliq.features.prepared.steps import UNDECIDED
from reliq.features.receipts.steps import IN_FLIGHT
from reliq.protocol.hidden import Hidden

HIDDEN: tuple[Hidden, ...] = (UNDECIDED, IN_FLIGHT)
