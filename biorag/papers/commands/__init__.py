"""The commands on manuscripts."""
