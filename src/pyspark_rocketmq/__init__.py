"""Spark looks for data sources in packages of such a name: this one makes `rocketmq` known to it."""

from rocketpipe.spark.source import RocketMQSource as DefaultSource

__all__ = ["DefaultSource"]
