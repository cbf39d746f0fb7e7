"""What a program can establish of a claim and its evidence: that words stand there, or which of them differs."""
