"""The comparisons run; figures are not looked at."""
