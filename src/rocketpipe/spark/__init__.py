"""`format("rocketmq")` for PySpark: batch and streaming, read and write, in Arrow columns."""
