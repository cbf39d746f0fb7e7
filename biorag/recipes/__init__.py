"""Papers as recipes: steps that are commands of biorag, and the tables that they fill."""
