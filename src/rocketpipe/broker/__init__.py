"""The embedded broker: RocketMQ's broker in pure Python."""
