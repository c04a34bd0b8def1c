"""The processes that carry out a benchmark, the orders they get, and the meters beside them."""
