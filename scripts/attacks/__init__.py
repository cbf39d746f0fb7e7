"""Seeded attacks: files, replies and variables made to do harm, and how biorag ends on each."""
