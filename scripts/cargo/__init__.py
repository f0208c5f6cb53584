"""Cargo: the code that travels to the measured host.

Standard library only, Python 3.9 or newer, and it never imports `decodelab`. `record`,
`start_cause` and `start_stages` are pure and are imported by the library as well.
"""
