"""The JSON bodies of commands, one dataclass each, used to write on one side and read on the other.

codec          Body: how a dataclass and its JSON become each other
route          topic routes, clusters, topic lists, key-value tables
topics         topic settings, and how a broker registers them
heartbeat      clients, their groups and subscriptions
groups         group settings, members, queue locks, assignments, connections
consumer_info  what a broker asks of a running consumer
offsets        queue and consume statistics, offset tables, resets
"""
