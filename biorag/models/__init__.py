"""Models: found, held to their formats, loaded and run."""
