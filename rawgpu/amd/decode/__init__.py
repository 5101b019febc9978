"""What AMD hardware and kernel drivers left in memory and files, as text for people."""
