"""The process of a lastflop plugin in Python: answers what worker/python_plugin.cc asks.

Arguments: the plugin's file, the socket's descriptor, the process to die with, and the cores.
One request a line comes in, one reply a line goes out: {"ok": ...}, {"refused": why} or
{"failed": why}; "ok" for a run. docs/plugins.md says what a plugin defines.
"""

import ctypes
import importlib.util
import json
import mmap
import os
import signal
import sys
import traceback
from types import SimpleNamespace

TYPES = {"bf16": (2, "<u2"), "int32": (4, "<i4"), "float32": (4, "<f4"), "uint8": (1, "|u1")}


class Array:
    """An array in memory that lastflop shares: row by row, and writable where it is an output.

    memory: its bytes; shape; dtype: bf16, int32, float32 or uint8 (bytes of packed formats).
    numpy.asarray() and torch.from_numpy() take it without a copy; numpy sees bf16 as uint16.
    """

    def __init__(self, segment, begin, shape, dtype):
        size, self._typestr = TYPES[dtype]
        count = 1
        for extent in shape:
            count *= extent
        self.shape = tuple(shape)
        self.dtype = dtype
        self.memory = segment.view[begin : begin + count * size]
        self._segment = segment
        self._begin = begin

    def first(self, rows):
        """The first `rows` along the first axis."""
        return Array(self._segment, self._begin, (rows,) + self.shape[1:], self.dtype)

    @property
    def __array_interface__(self):
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": self._typestr,
            "data": (self._segment.address + self._begin, False),
        }


class Segment:
    """Memory of the worker's process, by the path of its descriptor."""

    def __init__(self, path, size):
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), size)
        self.view = memoryview(self._map)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))

    def arrays(self, described):
        return SimpleNamespace(
            **{
                name: None if d is None else Array(self, d["begin"], d["shape"], d["dtype"])
                for name, d in described.items()
            }
        )


class Made:
    """A problem that the plugin was made ready for."""

    def __init__(self, state, call):
        self.state = state
        self.call = call  # Arrays with rows for the most tokens.
        self.calls = {}  # Arrays by number of tokens.

    def call_of(self, tokens):
        if tokens not in self.calls:
            arrays = vars(self.call).items()
            self.calls[tokens] = SimpleNamespace(
                num_tokens=tokens, **{n: None if a is None else a.first(tokens) for n, a in arrays}
            )
        return self.calls[tokens]


def load(path):
    spec = importlib.util.spec_from_file_location("lastflop_user_plugin", path)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, os.path.dirname(path))
    spec.loader.exec_module(module)
    if not callable(getattr(module, "run", None)):
        raise NotImplementedError("it defines no run(state, weights, call)")
    return module


class Host:
    def __init__(self, module):
        self.module = module
        self.made = {}
        self.weights = {}  # What run() gets, by layer: any state of the same problem may have made it.

    def query(self, request):
        if hasattr(self.module, "query"):
            self.module.query(SimpleNamespace(**request["problem"]))

    def create(self, request):
        problem = SimpleNamespace(**request["problem"])
        state = self.module.create(problem) if hasattr(self.module, "create") else problem
        call = Segment(request["memory"], request["bytes"]).arrays(request["arrays"])
        self.made[request["id"]] = Made(state, call)

    def prepare(self, request):
        made = self.made[request["id"]]
        weights = Segment(request["memory"], request["bytes"]).arrays(request["arrays"])
        weights.gate_up_tensor_scale = request["gate_up_tensor_scale"]
        weights.down_tensor_scale = request["down_tensor_scale"]
        if hasattr(self.module, "prepare"):
            weights = self.module.prepare(made.state, weights)
        self.weights[request["layer"]] = weights

    def destroy(self, request):
        del self.made[request["id"]]

    def run(self, made_id, layer, tokens):
        made = self.made[made_id]
        self.module.run(made.state, self.weights[layer], made.call_of(tokens))


def why(error):
    """The error, and where in the plugin it is from."""
    said = "".join(traceback.format_exception_only(type(error), error)).strip().splitlines()[-1]
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == sys.argv[1]]
    return said + (f" (line {own[-1].lineno})" if own else "")


def answer(work):
    try:
        return {"ok": work()}
    except NotImplementedError as error:
        return {"refused": str(error) or why(error)}
    except Exception as error:  # Whatever a plugin raises is its answer.
        return {"failed": why(error)}


def main():
    path, fd, parent, cores = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        return
    os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    requests = os.fdopen(os.dup(fd), "rb")
    replies = os.fdopen(fd, "wb", buffering=0)
    host = None

    def start():
        nonlocal host
        module = load(path)
        host = Host(module)
        version = ".".join(str(part) for part in sys.version_info[:3])
        return {"title": f"{getattr(module, 'title', os.path.basename(path))}, Python {version}"}

    replies.write((json.dumps(answer(start)) + "\n").encode())
    for line in requests:
        if line.startswith(b"run "):
            words = line.split()
            reply = answer(lambda: host.run(int(words[1]), int(words[2]), int(words[3])))
            replies.write(b"ok\n" if "ok" in reply else (json.dumps(reply) + "\n").encode())
        else:
            request = json.loads(line)
            reply = answer(lambda: getattr(host, request["do"])(request))
            replies.write((json.dumps(reply) + "\n").encode())


main()
