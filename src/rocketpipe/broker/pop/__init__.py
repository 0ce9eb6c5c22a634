"""POP: a broker shares out messages instead of queues, and each is acknowledged by itself.

What is promised
- A message that was popped is nobody else's for its invisible time. If it is not acknowledged by
  then it is stored again, in the retry topic of its group, and popped from there.
- None is lost, whatever crashes: a group's offset is committed only past messages whose checkpoint
  is as safe as the log can make it, and a checkpoint is done with only when each of its messages
  was acknowledged or is stored again.
- What was acknowledged does not come back after a restart, nor after the crash of a broker, as far
  as the log survived it. Only a crash in the very moment of storing again may do that twice.
- Ordered pops (the exception) do without checkpoints: the offset itself waits for the
  acknowledgement. What is in flight is saved now and then, so a crash may make the last seconds of
  an ordered group come again, and never skips any.
- The cost is that of what is in flight, not of what is stored.

How it works, from the bottom
checkpoints   what is in flight, and when it becomes visible again; plain data
revive_log    checkpoints and acknowledgements as records of the log, and the way back from them
offsets       how far each group has popped, ahead of what may be committed
ordered       one pop of a queue at a time
held_pops     pops that wait for messages
popping       pops, acknowledges, changes invisible times
reviving      stores again what was not acknowledged
sharing       which queues a member of a group shall read, and whether it pulls or pops
"""
