"""Level 2: which operations become which kernels, and where their results lie in memory."""
