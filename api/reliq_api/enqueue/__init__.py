"""Messages that arrive over HTTP."""
