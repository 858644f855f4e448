"""The parity report and the live originals, as inserts for hand-written pages."""
