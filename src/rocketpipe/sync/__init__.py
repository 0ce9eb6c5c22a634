"""The blocking faces of the async clients."""
