#!/usr/bin/env python3
"""Checks that includes go one way (docs/architecture.md), that each library stays in its room, and
that x.cc includes x.h first, which shows that x.h compiles on its own.

usage: check_layers.py [ROOT]
Prints FILE:LINE: message for every include that breaks a rule; exits 1 when there is one.
"""
import fnmatch
import os
import re
import sys

# What a room's files may include beside their own room. The rooms reached through these are
# allowed too: worker -> kernels -> gpu.
DIRECT = {
    "common": [],
    "plugin": [],
    "stats": ["common"],
    "step": ["common"],
    "spec": ["common"],
    "gpu": ["common"],
    "db": ["common"],
    "proto": ["common"],
    "planner": ["step", "stats"],
    "kernels": ["step", "gpu"],
    "collectives": ["step", "gpu"],
    "worker": ["step", "stats", "kernels", "collectives", "proto", "plugin"],
    "coordinator": ["planner", "db", "spec", "proto"],
    "report": ["common", "planner"],
    "cli": ["report", "spec", "planner", "step", "db", "proto"],
}

SOURCES = (".h", ".cc", ".cu", ".cuh")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
GRPC = re.compile(r"^(grpc|grpcpp|grpc\+\+)/|\.grpc\.pb\.h$")
PROTO = re.compile(r"^lastflop/v1/|^google/protobuf/")
CUDA = re.compile(
    r"^(cuda|cuda_[a-z0-9_]+|cublas\w*|cupti\w*|nccl|nvml|device_launch_parameters|"
    r"driver_types|vector_types|mma|sm_\w+)\.h(pp)?$|^(cuda|cub|thrust|cutlass|cute|nvtx3)/|"
    r"^cooperative_groups")
SEES_PROTO = ("*_service", "*_client", "*codec*")
# Launchers of kernels, and the files of the CUDA backend.
SEES_CUDA = ("*_launch.h", "*_cuda.h", "*_cuda.cc", "cuda_*", "*_cuda_test.cc")


def reachable(room):
    """The rooms that `room` may include, its own among them."""
    rooms, todo = set(), [room]
    while todo:
        current = todo.pop()
        if current not in rooms:
            rooms.add(current)
            todo.extend(DIRECT[current])
    return rooms


def sees_cuda(room, name):
    return (room == "gpu" or name.endswith((".cu", ".cuh"))
            or any(fnmatch.fnmatch(name, pattern) for pattern in SEES_CUDA))


def check_include(room, name, quoted, target):
    """The rule that including `target` from the file `name` of `room` breaks, or None."""
    stem = name.rsplit(".", 1)[0]
    first = target.split("/", 1)[0]
    if GRPC.search(target):
        is_client = room == "proto" and fnmatch.fnmatch(stem, "*_client")
        if room not in ("coordinator", "worker", "cli") and not is_client:
            return "only coordinator, worker, cli and the clients in proto/ see gRPC"
    if PROTO.search(target):
        if room not in ("coordinator", "worker", "cli", "proto"):
            return "only coordinator, worker and cli see proto/"
        if not any(fnmatch.fnmatch(stem, pattern) for pattern in SEES_PROTO):
            return "only *_service, *_client and codec files see proto/"
        return None
    if first == "sqlite3.h" and room != "db":
        return "only db sees SQLite"
    if first == "yaml-cpp" and room != "spec":
        return "only spec sees yaml-cpp"
    if CUDA.search(target) and not sees_cuda(room, name):
        return "only gpu/, *_launch.h, *_cuda.h, .cuh and .cu see CUDA headers"
    if not quoted:
        return None
    if first == "tests":
        return "only tests see tests/"
    if "/" not in target and not target.startswith("absl"):
        return "write the path from the root of the repository"
    if first in DIRECT and first not in reachable(room):
        return f"{room} may include {', '.join(sorted(reachable(room) - {room})) or 'no other room'}"
    return None


def check_tree(root):
    """Yields (path, line number, target, rule) for every broken rule under `root`."""
    for room in DIRECT:
        for folder, folders, names in os.walk(os.path.join(root, room)):
            folders.sort()
            for name in sorted(names):
                if not name.endswith(SOURCES):
                    continue
                path = os.path.join(folder, name)
                header = path[:-len(".cc")] + ".h"
                if not (name.endswith(".cc") and os.path.exists(header)):
                    header = None
                with open(path, encoding="utf-8") as lines:
                    for number, line in enumerate(lines, start=1):
                        match = INCLUDE.match(line)
                        if not match:
                            continue
                        quoted, target = match.group(1) == '"', match.group(2)
                        if header and os.path.relpath(header, root) != target:
                            yield (os.path.relpath(path, root), number, target,
                                   "a file's own header comes first")
                        header = None
                        rule = check_include(room, name, quoted, target)
                        if rule:
                            yield os.path.relpath(path, root), number, target, rule


def main():
    default = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    root = sys.argv[1] if len(sys.argv) > 1 else default
    broken = list(check_tree(root))
    for path, number, target, rule in broken:
        print(f"{path}:{number}: includes {target}: {rule}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
