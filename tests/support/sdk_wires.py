#!/usr/bin/env python3
"""The official SDKs of every wire must not notice the daemon.

    sdk_wires.py DIRECT-BASE-URL DAEMON-BASE-URL

Each request goes to the server directly and through the daemon, at temperature 0. All that the SDK made of
the answers must be equal, each chunk of a stream too, but for what differs between any two calls. At the end
each SDK must read a refusal of the daemon's own as the error that it is. Prints one line a case.
"""

import sys

import anthropic
import ollama
import openai
from sdk_equal import difference

# What no two calls have in common: names and times that the server gives them.
VOLATILE = {"id", "created", "created_at", "item_id", "call_id"}
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = "What is the weather in Paris?"
DESCRIPTION = "Tells the weather of a city."


def stable(value):
    if hasattr(value, "model_dump"):
        value = value.model_dump()
    if isinstance(value, dict):
        return {key: stable(inner) for key, inner in value.items() if key not in VOLATILE}
    if isinstance(value, (list, tuple)):
        return [stable(inner) for inner in value]
    return value


def open_ai(base: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{base}/v1", api_key="none", max_retries=0, timeout=60.0)


def claude(base: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=base, api_key="none", max_retries=0, timeout=60.0)


def llama(base: str) -> ollama.Client:
    return ollama.Client(host=base, timeout=60.0)


def responses_text(base):
    answer = open_ai(base).responses.create(model="m", input="How do bees make honey?", temperature=0, max_output_tokens=40)
    assert answer.output_text and answer.usage.output_tokens == 40, answer
    return answer


def responses_stream(base):
    events = list(
        open_ai(base).responses.create(
            model="m",
            instructions="Be brief.",
            input=[{"role": "user", "content": [{"type": "input_text", "text": "What is a library?"}]}],
            temperature=0,
            max_output_tokens=40,
            stream=True,
            include=["message.output_text.logprobs"],
            top_logprobs=3,
        )
    )
    deltas = [e for e in events if e.type == "response.output_text.delta"]
    assert len(deltas) >= 10 and deltas[0].logprobs and events[-1].type == "response.incomplete", events[-1]
    return events


def responses_tool(base):
    tool = {"type": "function", "name": "get_weather", "description": DESCRIPTION, "parameters": SCHEMA, "strict": True}
    answer = open_ai(base).responses.create(model="m", input=WEATHER, temperature=0, tools=[tool])
    assert answer.output[0].name == "get_weather", answer
    return answer


def responses_structured(base):
    form = {"format": {"type": "json_schema", "name": "place", "schema": SCHEMA, "strict": True}}
    answer = open_ai(base).responses.create(model="m", input="Name the capital of France.", temperature=0, text=form)
    assert '"city"' in answer.output_text, answer
    return answer


def chat_tool_stream(base):
    tool = {"type": "function", "function": {"name": "get_weather", "description": DESCRIPTION, "parameters": SCHEMA}}
    chunks = list(
        open_ai(base).chat.completions.create(
            model="m", messages=[{"role": "user", "content": WEATHER}], temperature=0, tools=[tool], stream=True
        )
    )
    assert any(c.choices and c.choices[0].delta.tool_calls for c in chunks), chunks
    return chunks


def chat_structured(base):
    form = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA, "strict": True}}
    return open_ai(base).chat.completions.create(
        model="m",
        messages=[{"role": "user", "content": "Name the capital of France."}],
        temperature=0,
        response_format=form,
    )


def embeddings_default(base):
    """The SDK asks for base64 and decodes it."""
    answer = open_ai(base).embeddings.create(model="m", input=["bees make honey", "taxes"])
    assert len(answer.data) == 2 and isinstance(answer.data[0].embedding[0], float), answer
    return answer


def embeddings_float(base):
    return open_ai(base).embeddings.create(model="m", input="bees", encoding_format="float", dimensions=64)


def openai_refused(base):
    try:
        open_ai(base).responses.create(model="m", input=[])
    except openai.BadRequestError as fault:
        return {"status": fault.status_code, "body": fault.body}
    raise AssertionError("an empty input was accepted")


# The SDK has no word for it.
COLD = {"temperature": 0}


def messages_text(base):
    answer = claude(base).messages.create(
        model="m", max_tokens=40, extra_body=COLD, system="Be brief.", messages=[{"role": "user", "content": "What is a library?"}]
    )
    assert answer.content[0].text and answer.stop_reason == "max_tokens", answer
    return answer


def messages_stream(base):
    with claude(base).messages.stream(
        model="m", max_tokens=40, extra_body=COLD, messages=[{"role": "user", "content": "How do bees make honey?"}]
    ) as stream:
        events = list(stream)
        final = stream.get_final_message()
    assert len(events) >= 20 and final.usage.output_tokens == 40, final
    return [*events, final]


def messages_tool(base):
    tool = {"name": "get_weather", "description": DESCRIPTION, "input_schema": SCHEMA}
    answer = claude(base).messages.create(
        model="m", max_tokens=40, extra_body=COLD, tools=[tool], messages=[{"role": "user", "content": WEATHER}]
    )
    assert answer.content[0].name == "get_weather", answer
    return answer


def messages_refused(base):
    try:
        claude(base).messages.create(model="m", max_tokens=4, messages=[])
    except anthropic.BadRequestError as fault:
        return {"status": fault.status_code, "body": fault.body}
    raise AssertionError("no message was accepted")


OPTIONS = {"temperature": 0, "num_predict": 40}


def ollama_chat(base):
    answer = llama(base).chat(model="m", messages=[{"role": "user", "content": "What is a library?"}], options=OPTIONS)
    assert answer.message.content and answer.done_reason == "length" and answer.eval_count == 40, answer
    return answer


def ollama_chat_stream(base):
    chunks = list(
        llama(base).chat(
            model="m", messages=[{"role": "user", "content": "What is a library?"}], options=OPTIONS, stream=True, logprobs=True, top_logprobs=2
        )
    )
    assert len(chunks) >= 10 and chunks[-1].done and chunks[0].logprobs, chunks[0]
    return chunks


def ollama_tool(base):
    tool = {"type": "function", "function": {"name": "get_weather", "description": DESCRIPTION, "parameters": SCHEMA}}
    answer = llama(base).chat(model="m", messages=[{"role": "user", "content": WEATHER}], tools=[tool], options=OPTIONS)
    assert answer.message.tool_calls[0].function.arguments["city"], answer
    return answer


def ollama_generate(base):
    return llama(base).generate(model="m", prompt="How do bees make honey?", options=OPTIONS, format=SCHEMA)


def ollama_generate_stream(base):
    chunks = list(llama(base).generate(model="m", prompt="How do bees make honey?", options=OPTIONS, stream=True))
    assert len(chunks) >= 10, chunks
    return chunks


def ollama_load(base):
    return llama(base).generate(model="m")


def ollama_embed(base):
    answer = llama(base).embed(model="m", input=["bees make honey", "taxes"])
    assert len(answer.embeddings) == 2, answer
    return answer


def ollama_refused(base):
    try:
        llama(base).embed(model="m", input=[], options={})
    except ollama.ResponseError as fault:
        return {"status": fault.status_code, "error": fault.error}
    raise AssertionError("no input was accepted")


CASES = [
    responses_text,
    responses_stream,
    responses_tool,
    responses_structured,
    chat_tool_stream,
    chat_structured,
    embeddings_default,
    embeddings_float,
    openai_refused,
    messages_text,
    messages_stream,
    messages_tool,
    messages_refused,
    ollama_chat,
    ollama_chat_stream,
    ollama_tool,
    ollama_generate,
    ollama_generate_stream,
    ollama_load,
    ollama_embed,
    ollama_refused,
]


def refusals(base: str) -> list[str]:
    """What each SDK makes of an error that the daemon itself answers with."""
    nowhere = {"x-touchstone-route": "nowhere"}
    read = []
    try:
        open_ai(base).responses.create(model="m", input="x", extra_headers=nowhere)
    except openai.BadRequestError as fault:
        assert (fault.code, fault.type, fault.param) == ("bad_request", "touchstone_error", None), fault.body
        read.append("openai")
    try:
        claude(base).messages.create(
            model="m", max_tokens=4, messages=[{"role": "user", "content": "x"}], extra_headers=nowhere
        )
    except anthropic.BadRequestError as fault:
        assert fault.body["type"] == "error" and fault.body["error"]["message"], fault.body
        read.append("anthropic")
    for stream in (False, True):
        try:
            answer = ollama.Client(host=base, headers=nowhere).chat(
                model="m", messages=[{"role": "user", "content": "x"}], stream=stream
            )
            list(answer)
        except ollama.ResponseError as fault:
            assert fault.status_code == 400 and "nowhere" in fault.error, (fault.status_code, fault.error)
            read.append("ollama")
    return read


def main() -> int:
    direct, daemon = sys.argv[1:3]
    failed = 0
    for case in CASES:
        first, through = stable(case(direct)), stable(case(daemon))
        if first != through:
            print(f"DIFFERS {case.__name__}: direct / daemon: {difference(first, through)}")
            failed += 1
        else:
            size = f"{len(through)} chunks" if isinstance(through, list) else "one answer"
            print(f"EQUAL {case.__name__}: {size}")
    read = refusals(daemon)
    print(f"REFUSALS {' '.join(read)}")
    return 1 if failed or read != ["openai", "anthropic", "ollama", "ollama"] else 0


if __name__ == "__main__":
    sys.exit(main())
