"""The mind of the agent: nouns, tables, guards, recovery, words. Pure: no network, no files, no clock."""
