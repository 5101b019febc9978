"""AMD's instruction sets: one table a format, all families; read `notation.py`, then `vop2.py`.

`formats.py` has the bit pictures, `decoder.py` reads bytes by all of them.
"""
