"""The simulated server and simulated ixsmi of the embedded host: for demonstration and tests."""
