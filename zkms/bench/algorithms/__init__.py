"""What is measured: zkms itself (`ours`), the `original`'s algorithm, and the least that kazoo can do (`floor`).

May import the façade, and the credentials of the command line. Read `algorithm` first: it is their interface.
"""
