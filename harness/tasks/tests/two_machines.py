"""Prints what a link between two machines carries, which has a limit.

``python -m harness.tasks.tests.two_machines MBIT``, in separate namespaces.
"""

import subprocess
import sys

from harness.tasks.slow_link.machines import Network, address, answer, inside

PROGRAM = """
import sys
from harness.tasks.slow_link.machines import measure
print(8e-6 * measure(sys.argv[1], int(sys.argv[2])).bandwidth)
"""

network = Network()
other = network.add()
network.slow_down(float(sys.argv[1]))
host, port = answer(address(0))
command = [sys.executable, "-c", PROGRAM, host, str(port)]
done = subprocess.run(
    inside(network.machines[other], command), capture_output=True, text=True
)
print(done.stdout, done.stderr)
