"""What is done in a schedule, and what must be true of it afterwards: one file for each kind of subscription."""
