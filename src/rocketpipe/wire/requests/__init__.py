"""Every request that a client, a broker or a NameServer of ours sends or answers.

sending     messages, batches, the end of transactions
reading     pulls, offsets, queries
clients     heartbeats and groups
pop         POP and its receipts
callbacks   what a broker asks of its clients
nameserver  routes, registration, KV
admin       topics, groups, brokers
"""
