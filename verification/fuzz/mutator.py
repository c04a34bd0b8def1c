"""Inputs made of others: flipped, cut, doubled, spliced, with numbers that are hard to get right. Seeded."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

LONGEST = 4096
NUMBERS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
WRITTEN = (b"-1", b"0", b"1e308", b"1e999", b"NaN", b"null", b"true", b"[]", b"{}", b'""', b"9" * 25, b"9" * 5000)
SIZES = (1, 2, 4, 8)


def inputs(seeds: Sequence[bytes], words: Sequence[bytes], count: int, seed: int) -> Iterator[bytes]:
    """`count` of them, first the seeds as they are; the same ones for the same seed."""
    chance = random.Random(seed)
    pool = [*seeds] or [b""]
    for number in range(count):
        if number < len(pool):
            yield pool[number]
            continue
        data = bytearray(chance.choice(pool))
        for _ in range(1 + chance.getrandbits(2)):
            _change(data, pool, words, chance)
        yield bytes(data[:LONGEST])


def _change(data: bytearray, pool: Sequence[bytes], words: Sequence[bytes], chance: random.Random) -> None:
    place = chance.randrange(len(data) + 1)
    kind = chance.randrange(9)
    if kind == 0 and data:
        data[place - 1] ^= 1 << chance.getrandbits(3) % 8
    elif kind == 1 and data:
        data[place - 1] = chance.getrandbits(8)
    elif kind == 2:
        data[place:place] = bytes(chance.getrandbits(8) for _ in range(1 + chance.getrandbits(3)))
    elif kind == 3:
        del data[place : place + 1 + chance.getrandbits(4)]
    elif kind == 4:
        data[place:place] = data[place : place + 1 + chance.getrandbits(5)] * (1 + chance.getrandbits(3))
    elif kind == 5:
        other = chance.choice(pool)
        data[place:] = other[chance.randrange(len(other) + 1) :]
    elif kind == 6:
        size = chance.choice(SIZES)
        number = chance.choice(NUMBERS) & (1 << 8 * size) - 1
        data[place : place + size] = number.to_bytes(size, "big")
    elif kind == 7 and words:
        word = chance.choice(words)
        end = place + (len(word) if chance.getrandbits(1) else 0)
        data[place:end] = word
    else:
        data[place : place + chance.getrandbits(3)] = chance.choice(WRITTEN)
