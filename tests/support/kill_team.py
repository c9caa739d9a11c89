"""The command line in a process that is killed at a point of its writes: `kill_team.py WHEN WHAT NTH WORD...`."""

import sys
from pathlib import Path

from support.kill_points import Killer, Point, armed
from worldagent.hosts.cli.entry import main

if __name__ == "__main__":
    when, what, nth, *words = sys.argv[1:]
    killer = Killer(Point(when, what, int(nth)), Path("where"))
    armed(killer)
    killer.on = True
    sys.argv = ["worldagent", *words]
    main()
