"""Papers in files: PDF, Word, web pages, EPUB, and the library of Zotero."""
