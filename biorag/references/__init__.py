"""References: what a snippet is cited by, in the formats of reference managers, and the facts of evidence."""
