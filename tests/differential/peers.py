"""The programs that run a model: ONNX Runtime and onnx's reference evaluator in a process of their
own, which a model may crash, and opkit's runner. Each answer is a list of arrays, or a text that
says why there is none."""
import multiprocessing
import os
import re
import select
import struct
import subprocess
import warnings

import ml_dtypes
import numpy as np

SECONDS = 60  # for a model; a longer run counts as a crash
CRASHED = "crashed"
DTYPES = {"float32": np.float32, "float64": np.float64, "float16": np.float16,
          "bfloat16": ml_dtypes.bfloat16, "bool": np.bool_, "int8": np.int8, "int16": np.int16,
          "int32": np.int32, "int64": np.int64, "uint8": np.uint8, "uint16": np.uint16,
          "uint32": np.uint32, "uint64": np.uint64}


def run_onnxruntime(model, inputs):
    import onnxruntime
    onnxruntime.set_default_logger_severity(4)
    if any(value.dtype == ml_dtypes.bfloat16 for value in inputs.values()):
        return "onnxruntime takes no bfloat16 from numpy"
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def run_reference(model, inputs):
    import onnx
    import onnx.reference
    return onnx.reference.ReferenceEvaluator(onnx.load_from_string(model)).run(None, inputs)


PEERS = {"onnxruntime": run_onnxruntime, "reference": run_reference}


def refuses(answer):
    """True if a peer says that the model is wrong, not only that it cannot run it."""
    return not re.search(CRASHED + "|NOT_?IMPLEMENTED|not implemented|not support|takes no bfloat16"
                         "|No corresponding Numpy type", answer, re.I)


def serve(pipe):
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    while True:
        name, model, inputs = pipe.recv()
        try:
            answer = PEERS[name](model, inputs)
            answer = answer if isinstance(answer, str) else [np.asarray(a) for a in answer]
        except Exception as error:  # every exception of a peer is its answer
            answer = f"{type(error).__name__}: {error}"
        pipe.send(answer)


class Peer:
    """A peer in its own process, which is started anew after a crash."""

    def __init__(self, name):
        self.name, self.process = name, None

    def start(self, model, inputs):
        if not self.process:
            self.pipe, other = multiprocessing.Pipe()
            self.process = multiprocessing.Process(target=serve, args=(other,), daemon=True)
            self.process.start()
            other.close()
        self.pipe.send((self.name, model, inputs))

    def answer(self):
        try:
            if self.pipe.poll(SECONDS):
                return self.pipe.recv()
        except (EOFError, ConnectionError):
            pass
        self.process.kill()
        self.process.join()
        self.process = None
        return CRASHED


class Runner:
    """opkit's runner: an answer for each backend."""

    def __init__(self, program):
        self.program, self.process = program, None

    def start(self, model, protos):
        if not self.process:
            self.process = subprocess.Popen([self.program], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE)
            self.pending = b""
        request = struct.pack("<q", len(model)) + model + struct.pack("<q", len(protos))
        request += b"".join(struct.pack("<q", len(proto)) + proto for proto in protos)
        self.process.stdin.write(request)
        self.process.stdin.flush()

    def answers(self):
        try:
            return {self.text(): self.outputs() for _ in range(self.number())}
        except EOFError as error:
            self.process.kill()
            return {"opkit": f"{CRASHED}: {error}, exit status {self.process.wait()}"}
        finally:
            if self.process.poll() is not None:
                self.process = None

    def outputs(self):
        count = self.number()
        if count < 0:
            return self.text()
        outputs = []
        for _ in range(count):
            dtype = DTYPES[self.text()]
            shape = [self.number() for _ in range(self.number())]
            outputs.append(np.frombuffer(self.blob(), dtype).reshape(shape))
        return outputs

    def blob(self):
        return self.read(self.number())

    def text(self):
        return self.blob().decode(errors="replace")

    def number(self):
        return struct.unpack("<q", self.read(8))[0]

    def read(self, size):
        while len(self.pending) < size:
            if not select.select([self.process.stdout], [], [], SECONDS)[0]:
                raise EOFError(f"no answer in {SECONDS} s")
            more = os.read(self.process.stdout.fileno(), 1 << 20)
            if not more:
                raise EOFError("it ended")
            self.pending += more
        data, self.pending = self.pending[:size], self.pending[size:]
        return data
