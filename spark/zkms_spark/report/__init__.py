"""The report: one HTML file with sentences, tables and plots. Read `report` first."""
