"""The commands that talk and serve."""
