"""Verification of answers, sentence by sentence, against the snippets that they were made from."""
