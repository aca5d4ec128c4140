#!/usr/bin/env python3
"""tritonclient must not notice the daemon.

    triton_equal.py DIRECT DAEMON MODEL        (host:port each)

Each request goes to the server and through the daemon: raw and JSON tensors in both directions, the
classification extension, a pinned version, compressed bodies, and what the server refuses. All that the client
made of the answers must be equal, each number to its last bit. Prints one line a case.
"""

import sys

import numpy as np
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

FEATURES, CLASSES = 8, 6
rng = np.random.default_rng(5)
BATCH = (np.sign(rng.standard_normal((5, FEATURES))) + 0.3 * rng.standard_normal((5, FEATURES))).astype(np.float32)


def request(client, model, *, raw_in, raw_out, classes=0, names=("probabilities", "label"), **more):
    tensor = triton.InferInput("features", list(BATCH.shape), "FP32")
    tensor.set_data_from_numpy(BATCH, binary_data=raw_in)
    outputs = [triton.InferRequestedOutput(n, binary_data=raw_out, class_count=classes) for n in names]
    return client.infer(model, [tensor], outputs=outputs or None, request_id="r-7", **more)


def made(result):
    """All of an answer: its document and its tensors as bytes."""
    document = result.get_response()
    tensors = {}
    for output in document.get("outputs", []):
        array = result.as_numpy(output["name"])
        tensors[output["name"]] = (str(array.dtype), array.shape, array.tolist() if array.dtype == object else array.tobytes())
    return document, tensors


def raw_both_ways(client, model):
    document, tensors = made(request(client, model, raw_in=True, raw_out=True))
    assert tensors["probabilities"][1] == (len(BATCH), CLASSES), tensors
    assert all("data" not in o for o in document["outputs"]), "not raw"
    return document, tensors


def json_both_ways(client, model):
    document, tensors = made(request(client, model, raw_in=False, raw_out=False))
    assert all("data" in o for o in document["outputs"]), "not JSON"
    return document, tensors


def raw_in_json_out(client, model):
    return made(request(client, model, raw_in=True, raw_out=False))


def default_outputs(client, model):
    return made(request(client, model, raw_in=True, raw_out=True, names=()))


def classification(client, model):
    document, tensors = made(request(client, model, raw_in=True, raw_out=True, classes=2, names=("probabilities",)))
    assert tensors["probabilities"][1] == (len(BATCH), 2), tensors
    return document, tensors


def pinned_version(client, model):
    return made(request(client, model, raw_in=True, raw_out=True, model_version="1"))


def compressed_request(client, model):
    """The server does not inflate requests; its complaint must be the same."""
    try:
        return made(request(client, model, raw_in=True, raw_out=True, request_compression_algorithm="gzip"))
    except InferenceServerException as fault:
        return str(fault)


def refused(client, model):
    """The server's own complaint reaches the caller as it is."""
    tensor = triton.InferInput("features", [1, 3], "FP32")
    tensor.set_data_from_numpy(np.zeros((1, 3), np.float32), binary_data=True)
    try:
        client.infer(model, [tensor])
    except InferenceServerException as fault:
        assert fault.status() == "400", fault.status()
        return str(fault)
    raise AssertionError("three numbers were accepted for eight")


def metadata(client, model):
    assert client.is_server_ready() and client.is_model_ready(model)
    return client.get_model_metadata(model)


CASES = [
    raw_both_ways,
    json_both_ways,
    raw_in_json_out,
    default_outputs,
    classification,
    pinned_version,
    compressed_request,
    refused,
    metadata,
]


def main() -> int:
    direct_url, daemon_url, model = sys.argv[1:4]
    direct, daemon = (triton.InferenceServerClient(url, network_timeout=60.0) for url in (direct_url, daemon_url))
    failed = 0
    for case in CASES:
        alone, through = case(direct, model), case(daemon, model)
        if alone != through:
            print(f"DIFFERS {case.__name__}: direct {alone!r} / daemon {through!r}")
            failed += 1
        else:
            print(f"EQUAL {case.__name__}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
