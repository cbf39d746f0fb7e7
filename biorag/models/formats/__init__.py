"""Model files held to their formats before a library opens them: sizes, counts and offsets, and no pickles."""
