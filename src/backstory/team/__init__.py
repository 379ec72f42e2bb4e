"""One memory for many machines: the sessions that are shared, their way to the archive of a team, and asking it."""
