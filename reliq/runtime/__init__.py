"""Services used by all parts of a process: logging, tracing, signals at its start, clocks, Redis URLs."""
