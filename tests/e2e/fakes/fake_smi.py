"""A stand-in for an SMI tool: one CSV line, at once."""

print("index, utilization.gpu [%], memory.used [MiB], power.draw [W]\n0, 29 %, 1000 MiB, 80.5 W")
