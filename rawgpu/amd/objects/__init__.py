"""Files that hold code for AMD GPUs, read strictly: by the driver to load, by the decoder to print.

`elffile.py` reads ELF, `bundle.py` finds it in a bundle of several, `metadata.py` says what kernels
are in it, and `codeobject.py` lays it out for an address, relocated by the rows of `relocate.py`.
"""
