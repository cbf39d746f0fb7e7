"""Settings, instructions, merge weights and the abstention threshold, chosen on development questions."""
