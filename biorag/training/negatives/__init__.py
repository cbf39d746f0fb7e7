"""Negatives: passages that do not answer a query, to train with."""
