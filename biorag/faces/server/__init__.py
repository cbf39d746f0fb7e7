"""`biorag serve`: a page, a JSON API and an OpenAI-compatible API over one open index, guarded and bounded."""
