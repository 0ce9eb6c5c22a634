"""SQL92 filters as Apache's rocketmq-filter 5.5.0 has them, with its types and its oddities."""
