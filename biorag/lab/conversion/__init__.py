"""Published data sets as the files that biorag's commands read, and samples of them."""
