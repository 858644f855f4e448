"""Steps a second of workers on machines of their own, which slow links connect.

A machine is a network namespace with a Ray node in it. A link is a pair of virtual
interfaces, which the kernel slows down in both directions, to a bridge between all
machines. So what workers exchange is sent, though all of it happens in one computer.
"""
