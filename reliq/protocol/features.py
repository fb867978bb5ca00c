"""What features let the steps of the core do with their messages."""

from reliq.features.prepared.steps import UNDECIDED
from reliq.protocol.hidden import Hidden

HIDDEN: tuple[Hidden, ...] = (UNDECIDED,)
