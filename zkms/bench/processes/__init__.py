"""The processes that carry out a benchmark (`actor`), their `orders`, who starts them (`crew`), and meters beside them.

May import the algorithms, `zkms.server` and what is below. Read `crew` first.
"""
