"""The checker of the fault campaign: a program of its own that reads histories and a dump of Redis, and nothing else.

    python -m tests.campaign.checker FOLDER

It imports nothing of the code that is judged, nor of the code that runs the campaign. FOLDER has `*.history`, one file
a process, `dump.json` (each key of Redis at the end) and `run.json` (what the run promised).
"""
