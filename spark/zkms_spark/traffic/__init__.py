"""How much was published and delivered, how fast, how late, and what went wrong on the way.

May import the modules of the package's root that are about Spark and the schema. Read `traffic` first.
"""
