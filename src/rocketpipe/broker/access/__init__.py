"""Who may ask what of a broker: RocketMQ's ACL 1 (4.x) and ACL 2 (5.3 and later)."""
