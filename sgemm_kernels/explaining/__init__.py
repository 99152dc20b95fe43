"""Count a kernel's memory accesses, find its bottleneck, and write pages about it."""
