"""Answers from evidence: prompting a generator, reading its reply, verifying its citations."""
