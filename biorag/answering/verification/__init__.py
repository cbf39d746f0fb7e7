"""Verification of answers, sentence by sentence, against the snippets that they were made from."""

from biorag.answering.verification.citations import find_quote, support, verify_citations

__all__ = ["find_quote", "support", "verify_citations"]
