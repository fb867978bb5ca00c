"""reliq together with what its users already have."""
