"""The ablation: negatives × similarity × reranker × k_init, each cell a few commands of biorag's own."""
