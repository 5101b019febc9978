"""The tests mirror the tree that they test; folders are packages, so that names may repeat."""
