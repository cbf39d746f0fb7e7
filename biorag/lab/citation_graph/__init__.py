"""The citation graph: which papers a paper cites, by PMID, on disk and offline."""
