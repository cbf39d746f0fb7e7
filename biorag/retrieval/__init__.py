"""First-stage retrieval, fusion, filters and reranking."""
