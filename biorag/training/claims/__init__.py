"""Claims for a judge to learn from: near misses made of true sentences, and rows of them and of people's claims."""
