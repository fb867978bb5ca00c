"""What topics note about queues outside of them: their bindings, and which queue is the alternate."""

from reliq.features.topics import ops as own
from reliq.protocol.features import Notes

BINDINGS = Notes("bindings", own.bound, lambda _, bindings: own.bind("unbind", bindings))
ALTERNATE = Notes("", own.alternates, lambda queue, _: own.unset_alternate_if(queue))
