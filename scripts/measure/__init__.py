"""Measurements of two checkouts beside each other, each in processes of its own."""
