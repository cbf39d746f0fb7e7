"""The engine as other programs see it: an index that stays open, and one form of what it gives."""
