"""Indexes of snippets: the same points in an embedded Qdrant Edge shard or on a Qdrant server."""
