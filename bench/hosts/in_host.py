"""Times calls of Axpy in one host, in turns with the host's own operator: in_host.py HOST OPTIONS.

hosts.py starts this program in the Python that has the host, once for each host and size. It prints one JSON object.
A contender is a function that makes so many calls and returns their seconds. In every round each contender, in a new
order, makes calls for a slice of time. So what else the machine does hits all of them.
"""
import argparse
import ctypes
import functools
import json
import pathlib
import random
import statistics
import sys
import timeit

import numpy

NUMPY, CPP, CPP_NEW = "NumPy `2.0 * x + y`", "C++, into an output", "C++, a new output"
LARGE_GOAL = 1.03  # of large calls, beside the call in C++


def statement(text, **names):
    """A contender: a statement of Python. A round's slice is too short for its garbage to matter."""
    return timeit.Timer(text, globals=names).timeit


def pointer(array):
    return ctypes.c_void_p(array.ctypes.data)


class Task:
    """z = 2 * x + y, with the contenders of one host and the comparisons between them."""

    def __init__(self, options):
        self.options = options
        self.contenders, self.comparisons = {}, []
        generator = numpy.random.default_rng(0)
        self.x, self.y = (generator.random(options.elements, numpy.float32) for _ in range(2))
        self.z = numpy.empty_like(self.x)

    @property
    def is_small(self):
        return self.options.elements < 1000

    @functools.cached_property
    def library(self):
        return ctypes.CDLL(self.options.library)

    def check(self, result, what):
        if not numpy.array_equal(numpy.asarray(result), 2 * self.x + self.y):
            sys.exit(f"{what}: a wrong result")

    def add(self, name, run, peers=()):
        """A contender of ours, beside peers: {name: the largest ratio that is a success, or None}."""
        self.contenders[name] = run
        self.comparisons += [(name, peer, goal) for peer, goal in dict(peers).items()]

    def add_cpp(self, name=CPP, x=None, y=None):
        """The call in C++: into the memory of z, or into a new output as the host makes one. Addresses of inputs may
        be given; else they are those of the task."""
        addresses = [x or self.x.ctypes.data, y or self.y.ctypes.data, self.z.ctypes.data if name == CPP else None]
        arguments = [*map(ctypes.c_void_p, addresses), ctypes.c_int64(self.x.size)]
        timed = self.library.bench_axpy
        timed.restype = ctypes.c_double
        self.contenders[name] = lambda calls: timed(*arguments, ctypes.c_int64(calls))

    def add_numpy(self):
        self.contenders[NUMPY] = statement("2.0 * x + y", x=self.x, y=self.y)


# --- the hosts

def tvm_ffi(task):
    import tvm_ffi as host
    module = host.load_module(task.options.library)
    names = {"f": module.Axpy, "bound": module.Axpy_create(2.0), "x": task.x, "y": task.y, "z": task.z}
    module.Axpy(task.x, task.y, 2.0, task.z)
    task.check(task.z, "tvm-ffi")
    task.add_cpp()
    if task.is_small:
        task.add_numpy()
        task.add("into a NumPy array", statement("f(x, y, 2.0, z)", **names), {NUMPY: 1.65, CPP: None})
        task.add("a new tensor", statement("f(x, y, 2.0)", **names), {NUMPY: None})
        task.add("attributes bound", statement("bound(x, y, z)", **names), {NUMPY: None})
        views = {name: host.from_dlpack(names[name]) for name in "xyz"}
        task.add("tensors of tvm-ffi", statement("f(x, y, 2.0, z)", **{**names, **views}), {NUMPY: None})
    else:
        task.add_cpp(CPP_NEW)
        task.add("into a NumPy array", statement("f(x, y, 2.0, z)", **names), {CPP: LARGE_GOAL})
        task.add("a new tensor", statement("f(x, y, 2.0)", **names), {CPP_NEW: LARGE_GOAL})
    return host.__version__


def onnxruntime(task):
    import onnx
    import onnxruntime as host
    from onnx import TensorProto, helper

    def session(*nodes, constants=()):
        x, y, z = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N"]) for name in "xyz")
        graph = helper.make_graph(nodes, "graph", [x, y], [z], initializer=constants)
        model = helper.make_model(graph, ir_version=9, opset_imports=[
            helper.make_opsetid("", 17), helper.make_opsetid("bench", 1)])
        session_options = host.SessionOptions()
        session_options.register_custom_ops_library(task.options.library)
        session_options.intra_op_num_threads = task.options.threads
        return host.InferenceSession(model.SerializeToString(), session_options, providers=["CPUExecutionProvider"])

    ours = session(helper.make_node("Axpy", ["x", "y"], ["z"], domain="bench", alpha=2.0))
    own = session(helper.make_node("Mul", ["two", "x"], ["t"]), helper.make_node("Add", ["t", "y"], ["z"]),
                  constants=[onnx.numpy_helper.from_array(numpy.float32(2), "two")])
    inputs = {"x": task.x, "y": task.y}
    for each in (ours, own):
        task.check(each.run(None, inputs)[0], "ONNX Runtime")
    task.add_cpp()
    peer = "its Mul and Add"
    if task.is_small:
        task.contenders[peer] = statement("run(None, inputs)", run=own.run, inputs=inputs)
        task.add("session.run", statement("run(None, inputs)", run=ours.run, inputs=inputs), {peer: 1.2})
        return host.__version__
    for name, each in ((peer, own), ("run_with_iobinding", ours)):
        binding = each.io_binding()
        binding.bind_cpu_input("x", task.x)
        binding.bind_cpu_input("y", task.y)
        binding.bind_output("z", "cpu", 0, numpy.float32, list(task.z.shape), task.z.ctypes.data)
        task.contenders[name] = statement("run(binding)", run=each.run_with_iobinding, binding=binding)
    task.add("run_with_iobinding", task.contenders["run_with_iobinding"], {CPP: LARGE_GOAL, peer: None})
    return host.__version__


def jax(task):
    import jax as host
    handler = host.ffi.pycapsule(task.library.opkit_xla_Axpy)
    host.ffi.register_ffi_target("axpy", {"instantiate": handler, "execute": handler}, platform="cpu")
    call = host.ffi.ffi_call("axpy", host.ShapeDtypeStruct(task.x.shape, task.x.dtype))
    ours = host.jit(lambda x, y: call(x, y, alpha=numpy.float32(2)))
    own = host.jit(lambda x, y: 2.0 * x + y)
    x, y = host.device_put(task.x), host.device_put(task.y)
    for each in (ours, own):
        task.check(each(x, y), "JAX")
    peer = "jit of `2.0 * x + y`"
    task.contenders[peer] = statement("f(x, y).block_until_ready()", f=own, x=x, y=y)
    timed = statement("f(x, y).block_until_ready()", f=ours, x=x, y=y)
    if task.is_small:
        task.add("in a jit", timed, {peer: 1.15})
    else:
        task.add_cpp(CPP_NEW, x.unsafe_buffer_pointer(), y.unsafe_buffer_pointer())
        task.add("in a jit", timed, {CPP_NEW: LARGE_GOAL, peer: None})
    return host.__version__


def package(task):
    import opkit as host
    host.load(task.options.library)
    names = {"opkit": host, "x": task.x, "y": task.y, "z": task.z}
    task.check(host.ops.Axpy(task.x, task.y, alpha=2.0), "the Python package")
    into, new = (statement(f"opkit.ops.Axpy(x, y, alpha=2.0{out})", **names) for out in (", out=z", ""))
    task.add_cpp()
    if task.is_small:
        task.add_numpy()
        task.add("a new array", new, {NUMPY: 2.7})
        task.add("out=", into, {NUMPY: 2.7, CPP: None})
    else:
        task.add_cpp(CPP_NEW)
        task.add("a new array", new, {CPP_NEW: LARGE_GOAL})
        task.add("out=", into, {CPP: LARGE_GOAL})
    return host.__version__


class DLTensor(ctypes.Structure):
    """opkit_dl_tensor of opkit_host.h."""
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


def c_host(task):
    host = ctypes.CDLL(task.options.host_library, ctypes.RTLD_GLOBAL)
    loop = ctypes.CDLL(task.options.host_loop)
    host.opkit_host_error.restype = host.opkit_host_version.restype = ctypes.c_char_p
    loop.bench_host_run.restype = loop.bench_plain_loop.restype = ctypes.c_double

    def must(status):
        if status != 0:
            sys.exit(f"opkit_host.h: {host.opkit_host_error().decode()}")

    library, operator = ctypes.c_void_p(), ctypes.c_void_p()
    must(host.opkit_host_load(task.options.library.encode(), None, ctypes.byref(library)))
    must(host.opkit_host_make(b"Axpy", ctypes.c_uint64(2), b'{"alpha": 2.0}', None, ctypes.byref(operator)))
    shape = (ctypes.c_int64 * 1)(task.x.size)
    task.kept = tensors = [DLTensor(data=array.ctypes.data, device_type=1, ndim=1, code=2, bits=32, lanes=1, shape=shape)
                           for array in (task.x, task.y, task.z)]
    Pointers = ctypes.POINTER(DLTensor)
    inputs = (Pointers * 2)(*map(ctypes.pointer, tensors[:2]))
    outputs = (Pointers * 1)(ctypes.pointer(tensors[2]))
    run = host.opkit_host_run
    run.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p]
    must(run(operator, 2, inputs, 1, outputs, None))
    task.check(task.z, "opkit_host.h")

    task.add_cpp()
    plain = "a plain loop in C"
    arrays = [*map(pointer, (task.x, task.y, task.z)), ctypes.c_int64(task.x.size)]
    task.contenders[plain] = lambda calls: loop.bench_plain_loop(*arrays, ctypes.c_int64(calls))
    goal = None if task.is_small else LARGE_GOAL
    task.add("opkit_host_run from C", lambda calls: loop.bench_host_run(operator, inputs, outputs, ctypes.c_int64(calls)),
             {CPP: goal, plain: None})
    names = {"run": run, "operator": operator, "inputs": inputs, "outputs": outputs}
    task.add("opkit_host_run by ctypes", statement("run(operator, 2, inputs, 1, outputs, None)", **names), {CPP: goal})
    return host.opkit_host_version().decode()


def torch(task):
    import torch as host
    host.set_num_threads(task.options.threads or host.get_num_threads())
    host.ops.load_library(task.options.library)
    host.ops.load_library(build_torch_peer(task.options.work))

    @host.library.custom_op("bench_python::axpy", mutates_args=())
    def in_python(x: host.Tensor, y: host.Tensor, alpha: float) -> host.Tensor:
        return host.add(y, x, alpha=alpha)

    x, y = host.from_numpy(task.x), host.from_numpy(task.y)
    peers = {"torch.library.custom_op": in_python, "TORCH_LIBRARY in C++": host.ops.bench_peer.Axpy}
    ours = host.ops.bench.Axpy
    for each in (ours, *peers.values()):
        task.check(each(x, y, alpha=2.0), "PyTorch")
    for name, each in peers.items():
        task.contenders[name] = statement("f(x, y, alpha=2.0)", f=each, x=x, y=y)
    task.add_cpp(CPP_NEW)
    goals = zip(peers, (1.0, 1.3)) if task.is_small else {CPP_NEW: LARGE_GOAL}
    task.add("torch.ops", statement("f(x, y, alpha=2.0)", f=ours, x=x, y=y), goals)
    return host.__version__


def build_torch_peer(work):
    """Compiles torch_axpy.cpp by one command, without ninja."""
    import subprocess

    import torch as host
    from torch.utils import cpp_extension
    made = pathlib.Path(work) / "libtorch_axpy.so"
    abi = int(host.compiled_with_cxx11_abi())
    subprocess.run(["g++", "-std=c++20", "-O2", "-shared", "-fPIC", f"-D_GLIBCXX_USE_CXX11_ABI={abi}",
                    *(f"-I{folder}" for folder in cpp_extension.include_paths()),
                    str(pathlib.Path(__file__).with_name("torch_axpy.cpp")), "-o", str(made)], check=True)
    return made


HOSTS = {"tvm_ffi": tvm_ffi, "onnxruntime": onnxruntime, "jax": jax, "package": package, "c_host": c_host, "torch": torch}


# --- turns

BATCHES = 9  # of a slice: a slice's figure is their median, so that a batch during which another program ran is no matter


def measure(contenders, rounds, seconds):
    """{contender: nanoseconds of a call in each round}."""
    calls = {}
    for name, run in contenders.items():
        run(10)
        one = min(run(3) for _ in range(5)) / 3
        calls[name] = max(1, round(seconds / BATCHES / one))
    times = {name: [] for name in contenders}
    shuffle = random.Random(0)
    for _ in range(rounds):
        for name in shuffle.sample(list(contenders), len(contenders)):
            run = contenders[name]
            run(calls[name])  # the caches forget the contender before
            times[name].append(statistics.median(run(calls[name]) for _ in range(BATCHES)) / calls[name] * 1e9)
    return times


def spread(values):
    """{"median", "middle_half"} of rounds."""
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": median, "middle_half": [low, high]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("host", choices=HOSTS)
    parser.add_argument("--elements", type=int, required=True)
    parser.add_argument("--threads", type=int, default=0, help="of the host; 0: its default")
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True, help="of a slice")
    for name in ("library", "host-library", "host-loop", "work"):
        parser.add_argument(f"--{name}")
    task = Task(parser.parse_args())
    try:
        version = HOSTS[task.options.host](task)
    except ImportError as missing:
        print(json.dumps({"not_measured": str(missing)}))
        return
    times = measure(task.contenders, task.options.rounds, task.options.seconds)
    rows = [{"call": ours, "ns": spread(times[ours]), "peer": peer, "peer_ns": spread(times[peer]),
             "ratio": spread([a / b for a, b in zip(times[ours], times[peer])]), "goal": goal}
            for ours, peer, goal in task.comparisons]
    print(json.dumps({"version": version, "rows": rows}))


if __name__ == "__main__":
    main()
