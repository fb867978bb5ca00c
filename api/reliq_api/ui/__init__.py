"""The dashboard: pages of HTML. `assembly` puts the router of its pages together."""
