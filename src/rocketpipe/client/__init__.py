"""What talks to brokers: for now, how a group's consumers share queues."""
