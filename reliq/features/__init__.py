"""The features: each folder is a slice, which can be deleted with its entries (docs/decisions/0014-slices.md)."""
