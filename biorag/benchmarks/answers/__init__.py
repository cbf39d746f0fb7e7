"""Answers held against the answers that experts wrote: exact and ideal ones, citations, abstention."""
