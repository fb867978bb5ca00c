"""What every part of a process uses: logging, tracing, forks, signals at its start, clocks."""
