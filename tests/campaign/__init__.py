"""The fault campaign: a system under load, faults drawn from a seed, and a history for the checker to judge.

`scenarios` is the table of faults, `run` carries one out, `system` is what it is done to, and `actors` are its
processes. `tests.campaign.checker` judges what they wrote and shares no code with them.
"""
