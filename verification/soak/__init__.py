"""Long runs: does anything grow, does everything stay bounded, do all come back at once and still work?

    python -m verification.soak                     half an hour at half of the peak, members come and go: does it grow?
    python -m verification.soak --scenario crowd    200 subscribers, each a process: every message to all of them
    python -m verification.soak --scenario storm    all their connections cut at once: how they come back
    python -m verification.soak --scenario overrun  publishers faster than their readers: bounded everywhere

A scenario is carried out by processes (`cast`, `roles`), looked at from outside (`meters`), and judged by numbers, not
by eye (`verdict`). Each writes a JSON document and, over time, a picture into verification/soak/results/.
"""
