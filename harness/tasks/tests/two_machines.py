"""Prints what a link between two machines carries, and what was sent, beside a limit.

``python -m harness.tasks.tests.two_machines MBIT``, in namespaces of its own.
"""

import subprocess
import sys

from harness.tasks.slow_link import link
from harness.tasks.slow_link.machines import Network, address, inside

PROGRAM = """
import sys
from harness.tasks.slow_link.link import measure
print(8e-6 * measure((sys.argv[1], int(sys.argv[2]))).bandwidth)
"""

network = Network()
other = network.add()
network.slow_down(float(sys.argv[1]))
with link.answering(address(0)) as (host, port):
    command = [sys.executable, "-c", PROGRAM, host, str(port)]
    done = subprocess.run(
        inside(network.machines[other], command), capture_output=True, text=True
    )
print(done.stdout, network.sent_bytes(other), done.stderr)
