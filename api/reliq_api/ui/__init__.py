"""The dashboard: pages of HTML. `router` assembles them."""
