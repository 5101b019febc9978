"""What AMD hardware is, as data: packets, registers, instructions, generations."""
