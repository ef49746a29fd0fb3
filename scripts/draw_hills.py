#!/usr/bin/env python3
"""Draws docs/hills.png: hills under an evening sky, a small picture of our own for tests and the demo.

    python3 scripts/draw_hills.py docs/hills.png

The same bytes each time: the grain comes from a counter, not from a clock.
"""
import math
import struct
import sys
import zlib

WIDTH, HEIGHT = 160, 120


def grain(x, y, salt):
    """-1..1, the same for the same place."""
    h = (x * 374761393 + y * 668265263 + salt * 2147483647) & 0xFFFFFFFF
    h = ((h ^ (h >> 13)) * 1274126177) & 0xFFFFFFFF
    return ((h ^ (h >> 16)) & 0xFFFF) / 32767.5 - 1


def ridge(x, base, height, phase):
    t = x / WIDTH * 2 * math.pi
    return base - height * (math.sin(t + phase) + 0.4 * math.sin(2.7 * t + 2 * phase) + 0.15 * math.sin(7.1 * t))


def pixel(x, y):
    t = y / HEIGHT
    color = [96 + 120 * t, 140 + 50 * t, 215 - 40 * t]
    sun = math.hypot(x - 116, y - 34)
    glow = math.exp(-sun / 22)
    color = [c + g * glow for c, g in zip(color, (130, 90, 10))]
    if sun < 9:
        color = [255, 240, 190]
    hills = [(66, 9, 0.4, (105, 120, 150)), (80, 10, 2.1, (70, 100, 95)), (98, 8, 4.0, (45, 80, 40))]
    for i, (base, height, phase, tone) in enumerate(hills):
        edge = ridge(x, base, height, phase)
        if y > edge:
            light = 1 + 0.25 * math.sin(x / 9 + phase) * math.exp(-(y - edge) / 18) + 0.07 * (i + 1) * grain(x, y, i)
            color = [c * light for c in tone]
    return [max(0, min(255, round(c + 3 * grain(x, y, 9)))) for c in color]


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def main():
    rows = b"".join(b"\0" + bytes(v for x in range(WIDTH) for v in pixel(x, y)) for y in range(HEIGHT))
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
    with open(sys.argv[1], "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b""))


main()
