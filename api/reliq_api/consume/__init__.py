"""Messages that leave over HTTP: leases and the polls that wait for them."""
