"""Training rows that models write: questions from snippets, and what is kept of them."""
