"""Commands that measure and analyse: trail, report, bench, demo."""
