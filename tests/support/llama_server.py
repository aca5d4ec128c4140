#!/usr/bin/env python3
"""A real llama.cpp server (PyPI's xllamacpp) for the tests.

    llama_server.py --model FILE.gguf --port N [--parallel N] [--threads N] [--context N] [--seed N]
                    [--max-lifetime SECONDS]

Prints `READY pid=… port=… load_ms=…` on one line once it serves. It ends by itself when the process
that started it is gone, and after --max-lifetime in any case, so that no test can leave one behind.

Everything that makes two equal requests differ is switched off: no prompt cache (a reused prefix is
computed in other batch sizes, which moves the last digits of the logits), no slot reuse by
similarity, a fixed seed. Requests that run at the same time still share batches; whoever compares
answers exactly sends one request at a time.
"""

import argparse
import os
import sys
import time

import xllamacpp

PARENT = os.getppid()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--alias", default="smollm2-135m")
    parser.add_argument("--parallel", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--context", type=int, default=4096, help="tokens, shared by all slots")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--max-lifetime", type=float, default=1800.0, help="seconds")
    return parser.parse_args()


def params(args: argparse.Namespace) -> xllamacpp.CommonParams:
    p = xllamacpp.CommonParams()
    p.model.path = args.model
    p.model_alias = {args.alias}
    p.hostnames = ["127.0.0.1"]
    p.port = args.port
    p.n_ctx = args.context
    p.n_parallel = args.parallel
    p.cpuparams.n_threads = args.threads
    p.cpuparams_batch.n_threads = args.threads
    p.sampling.seed = args.seed
    p.cache_prompt = False
    p.cache_ram_mib = 0
    p.slot_prompt_similarity = 0.0
    p.ui = False
    p.offline = True
    p.verbosity = 1
    return p


def main() -> int:
    args = parse()
    started = time.monotonic()
    server = xllamacpp.Server(params(args))  # returns once the model is loaded and the port is bound
    load_ms = round((time.monotonic() - started) * 1000)
    print(f"READY pid={os.getpid()} port={args.port} load_ms={load_ms} at={server.listening_address}", flush=True)
    while os.getppid() == PARENT and time.monotonic() - started < args.max_lifetime:
        time.sleep(0.25)
    sys.stdout.flush()
    os._exit(0)  # the server's own threads would wait for open connections


if __name__ == "__main__":
    sys.exit(main())
