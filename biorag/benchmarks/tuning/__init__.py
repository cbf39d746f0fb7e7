"""One setting of retrieval chosen on a development set."""
