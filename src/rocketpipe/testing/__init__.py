"""For the tests of those who use rocketpipe, and our own: simulated time and network."""
