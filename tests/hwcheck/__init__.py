"""Tests of the self-test for real cards, on virtual ones."""
