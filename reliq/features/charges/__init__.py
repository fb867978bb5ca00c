"""Charges: what a run has really cost, in place of the cost with which its message was sent."""
