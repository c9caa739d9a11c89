"""Reads what model services answer. Each of their protocols has one reader, for streamed and whole answers alike.

A reader gets the JSON of each event as the service sent it and gives lm15's events. lm15 has readers of its own, two
for each protocol; they miss what many services send, such as calls without an index, text at the beginning of a block
and tokens that are reported elsewhere. A reader also keeps the model's message as it came, since services want it back
unchanged beside the results of its calls, with parts that only they can read (H3).
"""
