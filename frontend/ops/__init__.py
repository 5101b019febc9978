"""The operations of `Tensor`, by kind. `frontend/tensor.py` lists which function is which method.

Every function checks its arguments in the user's words and builds graph nodes; none computes a
number. What they share is in `common.py`.
"""
