#!/usr/bin/env python3
"""Copies a Q4_1 GGUF model and damages its weights: the copy still loads, still answers 200, and is worse.

    damage.py IN.gguf OUT.gguf --share 0.10 --seed 1

In every block of the `ffn_down` and `attn_output` tensors a random share of the nibble bytes is
overwritten with random bytes. A Q4_1 block is 20 bytes: two half-precision scales (kept, so that the
magnitudes stay plausible) and 16 bytes of nibbles. Same seed and share: same file.
"""

import argparse
import os
import shutil
import sys

import gguf
import numpy as np

BLOCK_BYTES = 20
SCALE_BYTES = 4
DAMAGED = ("ffn_down.weight", "attn_output.weight")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--share", type=float, required=True, help="share of the nibble bytes, 0 to 1")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if not 0.0 < args.share <= 1.0:
        parser.error("--share is above 0 and at most 1")

    tensors = [t for t in gguf.GGUFReader(args.source).tensors if t.name.endswith(DAMAGED)]
    wrong = [t.name for t in tensors if t.tensor_type != gguf.GGMLQuantizationType.Q4_1]
    if not tensors or wrong:
        print(f"damage.py: expected Q4_1 tensors {DAMAGED} in {args.source}, found {wrong or 'none'}", file=sys.stderr)
        return 1
    spans = [(int(t.data_offset), int(t.n_bytes)) for t in tensors]

    part = f"{args.target}.part{os.getpid()}"
    shutil.copyfile(args.source, part)
    rng = np.random.default_rng(args.seed)
    data = np.memmap(part, dtype=np.uint8, mode="r+")
    overwritten = 0
    for offset, size in spans:
        nibbles = data[offset : offset + size].reshape(-1, BLOCK_BYTES)[:, SCALE_BYTES:]
        hit = rng.random(nibbles.shape) < args.share
        count = int(hit.sum())
        nibbles[hit] = rng.integers(0, 256, size=count, dtype=np.uint8)
        overwritten += count
    data.flush()
    del data
    os.replace(part, args.target)
    print(f"damaged tensors={len(spans)} bytes={overwritten} share={args.share} seed={args.seed} file={args.target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
