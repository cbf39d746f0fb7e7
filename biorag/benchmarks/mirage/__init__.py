"""MIRAGE (Xiong et al., 2024): zero-shot multiple choice with retrieval by the question alone."""
