"""The CPU as a device: the smallest complete backend."""
