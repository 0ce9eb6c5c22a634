"""Consumers: pulling, sharing queues with the rest of a group, and handing messages to a user."""
