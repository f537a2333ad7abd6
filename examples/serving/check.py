"""Starts MLServer in a folder of its own, asks it from several threads, and compares with NumPy: `python check.py`.

Needs `pip install mlserver autotune-compiler`.
"""

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

HERE = Path(__file__).parent
URL = "http://127.0.0.1:8080/v2/models/classifier"
REQUESTS, CLIENTS = 200, 16


def save_model(path, weight):
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", d]) for n, d in (("x", 64), ("y", 10))]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    weights = [helper.make_tensor("w", TensorProto.FLOAT, weight.shape, weight.tobytes(), raw=True)]
    graph = helper.make_graph(nodes, "classifier", info[:1], info[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)


def infer(x):
    given = {"name": "x", "shape": list(x.shape), "datatype": "FP32", "data": x.ravel().tolist()}
    body = json.dumps({"inputs": [given]}).encode()
    request = urllib.request.Request(f"{URL}/infer", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as reply:
        (found,) = json.load(reply)["outputs"]
    return np.array(found["data"], np.float32).reshape(found["shape"])


def wait_until_ready(server):
    for _ in range(600):
        if server.poll() is not None:
            sys.exit("the server ended")
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            urllib.request.urlopen(f"{URL}/ready", timeout=5).close()
            return
        time.sleep(0.1)
    sys.exit("the server did not become ready")


def main():
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((64, 10), dtype=np.float32)
    requests = [rng.standard_normal((1, 64), dtype=np.float32) for _ in range(REQUESTS)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in ("autotune_runtime.py", "model-settings.json", "settings.json"):
            shutil.copy(HERE / name, folder)
        save_model(folder / "model.onnx", weight)
        server = subprocess.Popen([Path(sys.executable).with_name("mlserver"), "start", folder], cwd=folder)
        try:
            wait_until_ready(server)
            start = time.perf_counter()
            with ThreadPoolExecutor(CLIENTS) as clients:
                answers = list(clients.map(infer, requests))
            seconds = time.perf_counter() - start
        finally:
            server.terminate()
            server.wait()
    for x, y in zip(requests, answers):
        np.testing.assert_allclose(y, np.maximum(x @ weight, 0), rtol=1e-4, atol=1e-4)
    print(f"{REQUESTS} right answers in {seconds:.2f} s")


if __name__ == "__main__":
    main()
