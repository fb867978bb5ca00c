"""Durable handlers: steps that do not run again, sleeps, waits for signals, and the signals."""
