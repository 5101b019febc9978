"""`python -m rawgpu` is the `rawgpu` command."""

from __future__ import annotations

import sys

from rawgpu.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
