"""Inserts of the parity report and of the live originals for hand-written pages."""
