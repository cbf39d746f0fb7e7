"""BioASQ task B, phase A: documents and snippets for questions, measured as BioASQ's evaluator does."""
