"""`python -m biorag` is `biorag`."""

from biorag.cli import main

if __name__ == "__main__":
    main()
