"""A user's own papers and manuscripts: beside the core, which it imports and never the other way round."""
