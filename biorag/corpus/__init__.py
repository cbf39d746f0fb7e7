"""Reading corpora: files, folders, archives and standard input as streams of snippets."""
