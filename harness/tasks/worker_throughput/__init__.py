"""Steps per second of workers on one machine and its loopback: AGN on Ray, and DDP."""
