"""Listeners to the solver, and the sentences, tables and JSON made from what they heard."""
