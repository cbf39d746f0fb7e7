"""Generators: a GGUF model in this process, or an OpenAI-compatible server."""
