"""Encoders and pipelines measured by mteb, on its named tasks and on tasks from local files."""
