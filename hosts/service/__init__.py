"""What a host does for its callers, without a transport: checked arguments come in, records go out.

`threads` has a function for each call about threads, and `turns` begins and resumes turns. `arguments` and `records`
are the models of both. `schedules` has the calls about schedules and `memory` those about memory entries, with their
models. `call` says who calls and what they can do, and `next_steps` what they can call then. `pauses` shows a person
what a turn waits for, and `answers` and `typed_answers` read what they say. `home` has the threads of a database
without an agent. `pool` opens the agents of a server, and `following` runs a turn that a call follows.

The sidecar puts this layer on MCP, the web app on HTTP, and the command line on a terminal. Import from its modules:
only `turns`, `following`, `pool`, `schedules` and `memory` load what runs an agent.
"""
