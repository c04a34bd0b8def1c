"""The audit: checks each guarantee against the trail, with evidence.

May import the modules of the package's root that are about Spark and the schema. Read `audit` first; `survey` and
`ground` prepare what it needs, and each guarantee is a file.
"""
