"""Trials: the demo, `reliq bench` and `reliq chaos`."""
