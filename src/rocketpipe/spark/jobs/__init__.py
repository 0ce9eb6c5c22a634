"""Ready-made jobs around format("rocketmq"), one to a module."""
