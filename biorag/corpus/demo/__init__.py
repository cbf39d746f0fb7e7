"""The packaged demonstration corpus and its questions, written for biorag."""
