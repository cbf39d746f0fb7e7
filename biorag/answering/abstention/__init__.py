"""Withholding: the probability that the index holds an answer, estimated from the ranking."""
