"""Judge records: effects, verdicts, findings and claims."""
