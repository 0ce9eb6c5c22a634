"""RocketMQ for Python and Spark."""
