"""Steps per second of workers on separate machines with slow links.

A machine is a network namespace with a Ray node. A link is a pair of virtual interfaces
to a bridge between all machines. The kernel limits its rate in both directions. So all
exchanges are really sent, although everything runs on one computer.
"""
