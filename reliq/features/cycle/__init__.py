"""The cycle of a queue: members that are visited in turn, again and again."""
