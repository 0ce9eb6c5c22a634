"""Spark looks for data sources in packages of such a name: here it finds `rocketmq`."""

from rocketpipe.spark.source import RocketMQSource as DefaultSource

__all__ = ["DefaultSource"]
