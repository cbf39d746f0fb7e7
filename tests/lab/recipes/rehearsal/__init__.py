"""Rehearsals of recipes: every step with its real options, on stand-ins that are made in seconds."""
