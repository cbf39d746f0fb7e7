"""The judge of claims that comes with biorag: an export in 8 bits, and the card that says how well it judges."""
