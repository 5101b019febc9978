"""House rules, kept by machine."""
