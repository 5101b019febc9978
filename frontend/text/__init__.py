"""Level 5: instructions as each target's text."""
