"""Parts of client_fidelity.py: an emitter that knows when it spoke, and what is compared with it."""
