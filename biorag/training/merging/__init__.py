"""Experts of one base merged into one encoder."""
