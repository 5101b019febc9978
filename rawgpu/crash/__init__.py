"""Kernel logs of GPUs that crashed, read and retold. What the lines mean is each vendor's to say.

`shape.py` is how a vendor declares the lines that it knows, `reader.py` finds them in a log of any
size, `report.py` is what comes out: events in the vocabulary of the samples, causes, advice.
"""
