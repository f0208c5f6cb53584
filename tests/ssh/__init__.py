"""Tests of everything that goes over SSH, against a real sshd on loopback."""
