"""An example of a lastflop plugin in Python: the experts of a layer in bf16, with nothing but the
standard library, to show what a plugin is given. It is slow; a real one hands the arrays on:
numpy.asarray(array) and torch.from_numpy(numpy.asarray(array)) take them without a copy.

docs/plugins.md says how it is run.
"""

import math
import struct

title = "moe_python 1.0"


def query(problem):
    """Says why it cannot run a problem, by raising NotImplementedError."""
    if problem.weight_format != "bf16":
        raise NotImplementedError(f"moe_python reads weights in bf16, not in {problem.weight_format}")


def create(problem):
    """What run() gets as `state`; without this function, it is the problem."""
    return problem


def floats(array):
    """A bf16 array as a list of floats: bf16 is the upper half of an fp32."""
    return [
        struct.unpack("<f", struct.pack("<I", value << 16))[0]
        for value in array.memory.cast("H")
    ]


def to_bf16(value):
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


def prepare(state, weights):
    """Once a layer, untimed: what run() gets as `weights`; without this function, they are."""
    return floats(weights.gate_up), floats(weights.down)


def product(matrix, row, vector):
    size = len(vector)
    return math.fsum(a * b for a, b in zip(matrix[row * size : (row + 1) * size], vector))


def run(state, weights, call):
    """One layer, timed: writes all of call.output."""
    gate_up, down = weights
    hidden, inter = state.hidden_size, state.intermediate_size
    tokens = floats(call.input)
    shared = floats(call.shared) if call.shared is not None else None
    ids = call.expert_ids.memory.cast("i")
    scales = call.expert_weights.memory.cast("f")
    output = call.output.memory.cast("H")
    for t in range(call.num_tokens):
        token = tokens[t * hidden : (t + 1) * hidden]
        sums = shared[t * hidden : (t + 1) * hidden] if shared else [0.0] * hidden
        for k in range(state.top_k):
            expert = ids[t * state.top_k + k] - state.first_expert
            if not 0 <= expert < state.num_local_experts:
                continue  # Another rank's.
            first = expert * 2 * inter
            act = []
            for f in range(inter):
                gate = product(gate_up, first + f, token)
                act.append(gate / (1 + math.exp(-gate)) * product(gate_up, first + inter + f, token))
            scale = scales[t * state.top_k + k]
            for h in range(hidden):
                sums[h] += scale * product(down, expert * hidden + h, act)
        for h in range(hidden):
            output[t * hidden + h] = to_bf16(sums[h])
