"""References of snippets in the formats of reference managers, and the facts of evidence."""
