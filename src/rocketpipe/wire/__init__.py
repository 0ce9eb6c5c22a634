"""The remoting protocol and the store's formats: bytes in, values out; no sockets or clocks."""
