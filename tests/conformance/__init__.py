"""A scripted server that speaks streams byte by byte, and what a right client reads in each."""
