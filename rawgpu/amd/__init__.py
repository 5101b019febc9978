"""AMD GPUs: raw driver over KFD, virtual machines, decoders, and the data that all three read."""
