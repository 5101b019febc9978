"""Native code of our own: ELF images, packet loop, helper threads, fault net, ordered stores.

Text in LLVM's language is compiled once, cached, and loaded by the same ELF loader that loads
kernels. Read `elf.py` and `image.py` for loading; `layout.py`, then `drain.py`, `pool.py` and
`faultnet.py` for running.
"""
