"""Training encoders and rerankers: rows of text, the contamination guard, losses, loops and checkpoints."""
