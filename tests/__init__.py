"""Tests. The rooms are those of the code; tests of modules in the root of zkms/ are here.

Beside the rooms: `guarantees` (what is promised, under faults), `requirements`, `security` (what each role may do),
`verification` (the tools of verification/, and short selections of what they run), `examples`, `packaging`,
`benchmarks`, and `support`, which rooms share.
"""
