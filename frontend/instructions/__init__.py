"""Level 4: typed instructions in structured regions, the same for every target."""
