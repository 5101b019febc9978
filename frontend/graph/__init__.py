"""Level 1: hash-consed tensor operations.

Read `node.py` first, which has the nodes and says which of them are the same; `gradient.py` goes
from nodes to the nodes of their derivatives.
"""
