"""Withholding: the probability that the index holds an answer, estimated from what retrieval found."""
