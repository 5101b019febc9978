"""Level 1: hash-consed tensor operations.

`node.py` has the nodes, `gradient.py` their derivatives.
"""
