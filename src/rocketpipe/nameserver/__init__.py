"""The NameServer of the embedded cluster: who the brokers are, and which topics they have."""
