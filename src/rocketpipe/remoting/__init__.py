"""Async input and output around the wire, the same for clients and servers."""
