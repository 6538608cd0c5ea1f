"""Measuring: the client, the schedule, validity rules and the rows that a cell leaves behind."""
