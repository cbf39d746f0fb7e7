"""Training rows that models write: questions, negatives and whole pairs, and filters of them."""
