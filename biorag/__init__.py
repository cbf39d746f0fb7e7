"""Answers biomedical questions from PubMed evidence."""
