"""Level 3: loop nests over index expressions, and the named transformations that change them."""
