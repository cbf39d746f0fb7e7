"""Settings: default, check and help of each in one place; files, environment, the syntax of a chain of rerankers."""
