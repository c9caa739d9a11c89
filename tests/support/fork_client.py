"""A program that stands for a fork: `fork_client.py ADDRESS PYTHON OPTION...` (support/forks.py).

It gives its streams to the fork that the server at ADDRESS makes, hands signals on to it, and ends as it ends. Where
the server has read something from another environment, it becomes a fresh process instead. It imports little: it is
started often.
"""

import array
import json
import os
import signal
import sys
from _socket import AF_UNIX, MSG_WAITALL, SCM_RIGHTS, SOL_SOCKET, socket

if __name__ == "__main__":
    address, *argv = sys.argv[1:]
    env = {name: value for name, value in os.environ.items() if name != "LC_CTYPE"}  # Python itself sets it
    asked = json.dumps({"argv": argv, "env": env, "cwd": os.getcwd(), "terminal": False}).encode()
    told = socket(AF_UNIX)
    told.connect(f"\0{address}")
    told.sendmsg([len(asked).to_bytes(4, "big")], [(SOL_SOCKET, SCM_RIGHTS, array.array("i", [0, 1, 2]))])
    told.sendall(asked)
    pid = int.from_bytes(told.recv(4, MSG_WAITALL), "big")
    if not pid:
        os.execv(argv[0], argv)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, lambda number, _: os.kill(pid, number))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # the fork alone has them now
        os.dup2(nowhere, stream)
    code = int.from_bytes(told.recv(4, MSG_WAITALL), "big", signed=True)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    os._exit(code)
