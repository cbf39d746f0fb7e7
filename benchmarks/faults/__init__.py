"""What happens to an index and to runs when things fail; the figures of docs/reliability.md."""
