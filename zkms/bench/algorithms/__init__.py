"""What is measured: zkms itself (`ours`), the `original`'s algorithm, and the least that kazoo can do (`floor`).

May import the façade, and of `processes` the orders and tallies. Read `algorithm` first: it is their interface.
"""
