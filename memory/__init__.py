"""The notebook of the agent: events, evidence and the booking ledger in SQLite, and what of it a request holds."""
