"""The demo: a shop's messages through failing brokers and Spark, and proof that none is lost."""
