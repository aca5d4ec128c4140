#!/usr/bin/env python3
"""The openai SDK must not notice the daemon.

    sdk_equal.py DIRECT-BASE-URL DAEMON-BASE-URL MODEL

Each request goes to the server twice, which shows that the server itself answers it the same way every
time, and then through the daemon. All that the SDK made of the answers must be equal, each chunk of a
stream and each logprob to its last digit, but for what differs between any two calls. One request at a
time: requests that share a batch differ in the last digits of their logits. Prints one line a case.
"""

import sys

import openai

# What no two calls have in common: names and times that the server gives them.
VOLATILE = {"id", "created", "timings"}


def stable(value):
    if isinstance(value, dict):
        return {key: stable(inner) for key, inner in value.items() if key not in VOLATILE}
    if isinstance(value, list):
        return [stable(inner) for inner in value]
    return value


def client(base: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=base, api_key="none", max_retries=0, timeout=90.0)


def chat(to: openai.OpenAI, model: str):
    return to.chat.completions.create(
        model=model,
        messages=[
            {"role": "system", "content": "You answer in one short sentence."},
            {"role": "user", "content": "What do bees make?"},
        ],
        temperature=0,
        seed=11,
        max_tokens=32,
    ).model_dump()


def chat_unicode(to: openai.OpenAI, model: str):
    return to.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "Répète : « déjà vu » – 東京 🌍"}],
        temperature=0,
        seed=11,
        max_tokens=24,
        logprobs=True,
        top_logprobs=3,
        n=1,
        stop=["\n\n"],
    ).model_dump()


def chat_stream(to: openai.OpenAI, model: str):
    chunks = to.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "Count from one to eight in words."}],
        temperature=0,
        seed=11,
        max_tokens=40,
        stream=True,
        stream_options={"include_usage": True},
        logprobs=True,
        top_logprobs=5,
    )
    made = [chunk.model_dump() for chunk in chunks]
    positions = [p for c in made for choice in c["choices"] for p in (choice.get("logprobs") or {}).get("content") or []]
    assert len(positions) >= 8, f"only {len(positions)} positions with logprobs: {made[:3]}"
    assert all(len(p["top_logprobs"]) == 5 for p in positions), "fewer alternatives than asked for"
    assert made[-1]["usage"], "no usage at the end of the stream"
    return made


def completion(to: openai.OpenAI, model: str):
    return to.completions.create(
        model=model, prompt="The colours of the rainbow are red,", temperature=0, seed=11, max_tokens=24, logprobs=2
    ).model_dump()


def completion_stream(to: openai.OpenAI, model: str):
    chunks = to.completions.create(
        model=model, prompt="Once upon a time, a fox", temperature=0, seed=11, max_tokens=24, stream=True
    )
    return [chunk.model_dump() for chunk in chunks]


def refused(to: openai.OpenAI, model: str):
    """The server's own complaint reaches the caller as it is."""
    try:
        to.chat.completions.create(model=model, messages=[{"role": "user", "content": "x"}], max_tokens=4, extra_body={"grammar": "root ::= ("})
    except openai.APIStatusError as fault:
        return {"status": fault.status_code, "type": type(fault).__name__, "body": fault.body}
    raise AssertionError("a broken grammar was accepted")


CASES = [chat, chat_unicode, chat_stream, completion, completion_stream, refused]


def difference(a, b, path: str = "") -> str:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted(a.keys() | b.keys()):
            if a.get(key, "<absent>") != b.get(key, "<absent>"):
                return difference(a.get(key, "<absent>"), b.get(key, "<absent>"), f"{path}.{key}")
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for index, (x, y) in enumerate(zip(a, b)):
            if x != y:
                return difference(x, y, f"{path}[{index}]")
    return f"{path or 'whole'}: {a!r} / {b!r}"


def main() -> int:
    direct_url, daemon_url, model = sys.argv[1:4]
    direct, daemon = client(direct_url), client(daemon_url)
    failed = 0
    for case in CASES:
        first, second = stable(case(direct, model)), stable(case(direct, model))
        through = stable(case(daemon, model))
        if first != second:
            print(f"UNFIT {case.__name__}: the server does not repeat itself: {difference(first, second)}")
            failed += 1
        elif second != through:
            print(f"DIFFERS {case.__name__}: direct / daemon: {difference(second, through)}")
            failed += 1
        else:
            size = f"{len(through)} chunks" if isinstance(through, list) else "one answer"
            print(f"EQUAL {case.__name__}: {size}")
    names = [sorted(model.id for model in c.models.list().data) for c in (direct, daemon)]
    print(f"MODELS direct {names[0]} daemon {names[1]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
