"""Helpers without knowledge of retrieval: files, locks, resumable runs, the network, retries, text, plots."""
