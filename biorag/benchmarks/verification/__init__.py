"""How well the check of sentences tells true claims from falsified ones."""
