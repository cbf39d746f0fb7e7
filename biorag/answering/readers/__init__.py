"""Readers of evidence: what of a snippet they read, and a language model as one of them."""
