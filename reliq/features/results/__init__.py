"""Results: what a handler has returned, for those who ask for it or wait for it."""
