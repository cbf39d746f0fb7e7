"""Corpora too large for one machine: exported, encoded by many workers, and loaded."""
