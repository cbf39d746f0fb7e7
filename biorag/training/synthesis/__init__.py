"""Training rows that models write: questions, negatives and whole pairs, and what is kept of them."""
