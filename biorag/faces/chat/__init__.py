"""A conversation over one open index: follow-up questions, slash commands, and its record."""
