"""Papers' tables: their runs, what is measured of them, and ours beside the papers'."""
