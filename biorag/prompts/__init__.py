"""Prompt templates, their rendering, and the reading of replies; pure, without any model."""
