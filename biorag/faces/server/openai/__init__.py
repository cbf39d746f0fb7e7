"""OpenAI's interfaces over the indexes."""
