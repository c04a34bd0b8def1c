"""Workloads: the programs of a schedule, and the promises that must be kept; one file for each kind."""
