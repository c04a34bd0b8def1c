"""Tests of the tools in verification/, and short selections of what they run."""
