"""Looking after a cluster: topics, groups, messages, offsets and brokers, an idea per module."""
