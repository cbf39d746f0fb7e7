"""The Python interface: an index that stays open, and its results."""
