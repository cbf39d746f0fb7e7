"""Manuscripts: the references that they list, the sentences that cite them, and whether both hold."""
