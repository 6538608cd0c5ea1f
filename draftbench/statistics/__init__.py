"""From recorded rows to tables: everything here runs without a GPU and without the engine."""
